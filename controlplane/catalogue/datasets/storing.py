"""The files of ready datasets and corpora in the artifact store, each once by its SHA-256: uploaded once a version is
ready, fetched when they are missing here, removed with the last version that has them.

Hosts go on asking the control plane for a run's rows: the store needs no second way to them. A control plane that was
restored from its database alone, or that has lost its disk, has its datasets again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from controlplane.catalogue.datasets.folders import LOCK, try_lock
from controlplane.catalogue.datasets.models import CorpusVersion, DatasetVersion, StoredFolder
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.worker import slot
from controlplane.platform.accounts import vault
from workers.artifactstore import ArtifactStore, StoreError

log = logging.getLogger(__name__)

AGAIN, LONGEST = timedelta(minutes=1), timedelta(hours=6)
LEFT_OUT = {LOCK, files.PROGRESS}


@dataclass(frozen=True)
class ReadyFolder:
    """A ready version's folder."""

    name: str
    """Relative to the data folder: datasets/12."""
    main: str
    """The file without which nothing can be done; fetched last, so that it stands for all."""

    @property
    def folder(self) -> Path:
        return Path(settings.DATA_DIR) / self.name

    @property
    def is_here(self) -> bool:
        return (self.folder / self.main).is_file()


def reconcile(now: datetime) -> None:
    """Fetch, upload and remove what is due, unless another process is at it or the worker has no place for it."""
    address = vault.artifact_store_address()
    if not address:
        return
    with slot() as free, try_lock(Path(settings.DATA_DIR) / "store.lock") as acquired:
        if free and acquired:
            _reconcile(address, now)


def stored(version: DatasetVersion | CorpusVersion) -> StoredFolder | None:
    """The state of the copy in the store, or the reason why there is none."""
    return StoredFolder.objects.filter(name=_name(version)).first()


def is_on_its_way(version: DatasetVersion | CorpusVersion) -> bool:
    """True if its files are in the store but missing here: they are fetched soon."""
    return _is_in(stored(version), vault.artifact_store_address())


def _reconcile(address: str, now: datetime) -> None:
    ready = {kept.name: kept for kept in _ready()}
    rows = {row.name: row for row in StoredFolder.objects.all()}
    waiting = {row.name for row in rows.values() if row.next_at is not None and row.next_at > now}
    missing = [kept for name, kept in ready.items() if not kept.is_here and _is_in(rows.get(name), address)]
    new = [kept for name, kept in ready.items() if kept.is_here and not _is_in(rows.get(name), address)]
    gone = [row for name, row in rows.items() if name not in ready]
    try:
        store = _open() if missing or new or gone else None
        for kept in missing:
            if store and kept.name not in waiting:
                _fetch(store, kept, rows[kept.name], now)
        for kept in new:
            if store and kept.name not in waiting:
                _upload(store, kept, address, now)
        for row in gone:
            if store and row.name not in waiting:
                _remove(store, row, now)
    except (StoreError, vault.NotGiven) as error:
        log.warning("datasets and the store: %s", error)


def _open() -> ArtifactStore | None:
    store = vault.artifact_store()
    return ArtifactStore(store) if store else None


def _ready() -> Iterator[ReadyFolder]:
    for pk in DatasetVersion.objects.filter(status=DatasetVersion.READY).values_list("pk", flat=True):
        yield ReadyFolder(f"datasets/{pk}", files.ROWS)
    for pk in CorpusVersion.objects.filter(status=CorpusVersion.READY).values_list("pk", flat=True):
        yield ReadyFolder(f"corpora/{pk}", files.DOCUMENTS)


def _name(version: DatasetVersion | CorpusVersion) -> str:
    return f"{'datasets' if isinstance(version, DatasetVersion) else 'corpora'}/{version.pk}"


def _is_in(row: StoredFolder | None, address: str) -> bool:
    """A store of another address has nothing yet."""
    return row is not None and row.stored_at is not None and row.store == address


def _upload(store: ArtifactStore, kept: ReadyFolder, address: str, now: datetime) -> None:
    row, _ = StoredFolder.objects.get_or_create(name=kept.name)
    try:
        content = _content(kept.folder, row)
        StoredFolder.objects.filter(pk=row.pk).update(files=content)  # first: nothing may be left in the store unknown
        for each in content:
            store.put(kept.folder / each["path"], _blob(each["sha256"]), size=each["size"], sha256=each["sha256"])
    except FileNotFoundError:
        return  # deleted meanwhile
    except StoreError as error:
        _failed(row, error, now)
        raise
    fields = {"store": address, "stored_at": now, "problem": "", "next_at": None, "tries": 0}
    StoredFolder.objects.filter(pk=row.pk).update(**fields)


def _content(folder: Path, row: StoredFolder) -> list[dict[str, Any]]:
    """The files of a ready version's folder. They no longer change, so an earlier try has their hashes."""
    known = {(each["path"], each["size"]): each["sha256"] for each in row.files}
    paths = [path for path in sorted(folder.iterdir()) if path.name not in LEFT_OUT and path.is_file()]
    sizes = [(path, path.stat().st_size) for path in paths if path.suffix != ".part"]
    return [
        {"path": path.name, "size": size, "sha256": known.get((path.name, size)) or _sha256(path)}
        for path, size in sizes
    ]


def _fetch(store: ArtifactStore, kept: ReadyFolder, row: StoredFolder, now: datetime) -> None:
    try:
        for each in sorted(row.files, key=lambda file: file["path"] == kept.main):
            target = kept.folder / Path(each["path"]).name
            if not target.is_file():
                store.get(_blob(each["sha256"]), target, sha256=each["sha256"])
    except StoreError as error:
        _failed(row, error, now)
        raise
    StoredFolder.objects.filter(pk=row.pk).update(problem="", next_at=None, tries=0)
    log.info("%s was fetched from the store", kept.name)


def _remove(store: ArtifactStore, row: StoredFolder, now: datetime) -> None:
    """Delete the objects of a deleted version that no other version shares."""
    others = StoredFolder.objects.exclude(pk=row.pk).values_list("files", flat=True)
    shared = {each["sha256"] for content in others for each in content}
    try:
        for each in row.files:
            if each["sha256"] not in shared:
                store.remove_file(_blob(each["sha256"]))
    except StoreError as error:
        _failed(row, error, now)
        raise
    row.delete()


def _failed(row: StoredFolder, error: StoreError, now: datetime) -> None:
    longer: int = 2 ** min(row.tries, 10)
    fields = {"problem": str(error)[:1000], "next_at": now + min(AGAIN * longer, LONGEST), "tries": row.tries + 1}
    StoredFolder.objects.filter(pk=row.pk).update(**fields)


def _blob(sha256: str) -> str:
    return f"datasets/{sha256}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
