"""Storage of the files of ready datasets and corpora in the artifact store; identical files are stored once.

Files are uploaded once a version is ready, fetched when they are missing here, and removed with the last version that
has them. A control plane that lost its disk, or was restored from its database alone, therefore gets its datasets back.
Hosts still request a run's rows from the control plane, not from the store.
"""

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

FIRST_RETRY_DELAY, MAX_RETRY_DELAY = timedelta(minutes=1), timedelta(hours=6)
UNSTORED_FILES = {LOCK, files.PROGRESS}


@dataclass(frozen=True)
class ReadyFolder:
    name: str
    """Path in the data folder, such as datasets/12."""
    main: str
    """Main file, which is fetched last: if it is here, all files are."""

    @property
    def folder(self) -> Path:
        return Path(settings.DATA_DIR) / self.name

    @property
    def is_here(self) -> bool:
        return (self.folder / self.main).is_file()


def reconcile(now: datetime) -> None:
    """Fetch, upload and remove the files that are due, unless another process is doing so or no slot is free."""
    address = vault.artifact_store_address()
    if not address:
        return
    with slot() as has_slot, try_lock(Path(settings.DATA_DIR) / "store.lock") as has_lock:
        if has_slot and has_lock:
            _reconcile(address, now)


def stored(version: DatasetVersion | CorpusVersion) -> StoredFolder | None:
    """Return a version's copy in the store, or None if no upload has started."""
    return StoredFolder.objects.filter(name=_name(version)).first()


def is_being_fetched(version: DatasetVersion | CorpusVersion) -> bool:
    """Return whether the version's files are in the store, so that missing ones will be fetched."""
    return _is_stored_in(stored(version), vault.artifact_store_address())


def _reconcile(address: str, now: datetime) -> None:
    copies = {row.name: row for row in StoredFolder.objects.all()}
    waiting = {row.name for row in copies.values() if row.next_at is not None and row.next_at > now}
    ready = list(_ready_folders())
    due = [folder for folder in ready if folder.name not in waiting]
    missing = [folder for folder in due if not folder.is_here and _is_stored_in(copies.get(folder.name), address)]
    unstored = [folder for folder in due if folder.is_here and not _is_stored_in(copies.get(folder.name), address)]
    orphaned = [row for name, row in copies.items() if name not in waiting | {folder.name for folder in ready}]
    try:
        remote = vault.artifact_store() if missing or unstored or orphaned else None
        if not remote:
            return
        store = ArtifactStore(remote)
        for folder in missing:
            _fetch(store, folder, copies[folder.name], now)
        for folder in unstored:
            _upload(store, folder, address, now)
        for row in orphaned:
            _remove(store, row, now)
    except (StoreError, vault.NotGiven) as error:
        log.warning("Could not sync datasets with the artifact store: %s", error)


def _ready_folders() -> Iterator[ReadyFolder]:
    for pk in DatasetVersion.objects.filter(status=DatasetVersion.READY).values_list("pk", flat=True):
        yield ReadyFolder(f"datasets/{pk}", files.ROWS)
    for pk in CorpusVersion.objects.filter(status=CorpusVersion.READY).values_list("pk", flat=True):
        yield ReadyFolder(f"corpora/{pk}", files.DOCUMENTS)


def _name(version: DatasetVersion | CorpusVersion) -> str:
    return f"{'datasets' if isinstance(version, DatasetVersion) else 'corpora'}/{version.pk}"


def _is_stored_in(stored_folder: StoredFolder | None, address: str) -> bool:
    return stored_folder is not None and stored_folder.stored_at is not None and stored_folder.store == address


def _upload(store: ArtifactStore, folder: ReadyFolder, address: str, now: datetime) -> None:
    stored_folder, _ = StoredFolder.objects.get_or_create(name=folder.name)
    try:
        contents = _contents(folder.folder, stored_folder)
        StoredFolder.objects.filter(pk=stored_folder.pk).update(
            files=contents
        )  # before the upload, so that every stored object is recorded
        for file in contents:
            store.put(folder.folder / file["path"], _blob(file["sha256"]), size=file["size"], sha256=file["sha256"])
    except FileNotFoundError:
        return  # the version was deleted during the upload
    except StoreError as error:
        _record_failure(stored_folder, error, now)
        raise
    fields = {"store": address, "stored_at": now, "problem": "", "next_at": None, "tries": 0}
    StoredFolder.objects.filter(pk=stored_folder.pk).update(**fields)


def _contents(folder: Path, stored_folder: StoredFolder) -> list[dict[str, Any]]:
    """List the files in a ready version's folder. They never change, so hashes from an earlier try are reused."""
    hashes = {(file["path"], file["size"]): file["sha256"] for file in stored_folder.files}
    paths = [path for path in sorted(folder.iterdir()) if path.name not in UNSTORED_FILES and path.is_file()]
    sizes = [(path, path.stat().st_size) for path in paths if path.suffix != ".part"]
    return [
        {"path": path.name, "size": size, "sha256": hashes.get((path.name, size)) or files.sha256_of(path)}
        for path, size in sizes
    ]


def _fetch(store: ArtifactStore, folder: ReadyFolder, stored_folder: StoredFolder, now: datetime) -> None:
    try:
        for file in sorted(stored_folder.files, key=lambda file: file["path"] == folder.main):
            target = folder.folder / Path(file["path"]).name
            if not target.is_file():
                store.get(_blob(file["sha256"]), target, sha256=file["sha256"])
    except StoreError as error:
        _record_failure(stored_folder, error, now)
        raise
    StoredFolder.objects.filter(pk=stored_folder.pk).update(problem="", next_at=None, tries=0)
    log.info("%s was fetched from the store", folder.name)


def _remove(store: ArtifactStore, stored_folder: StoredFolder, now: datetime) -> None:
    other_contents = StoredFolder.objects.exclude(pk=stored_folder.pk).values_list("files", flat=True)
    shared_hashes = {file["sha256"] for contents in other_contents for file in contents}
    try:
        for file in stored_folder.files:
            if file["sha256"] not in shared_hashes:
                store.remove_file(_blob(file["sha256"]))
    except StoreError as error:
        _record_failure(stored_folder, error, now)
        raise
    stored_folder.delete()


def _record_failure(stored_folder: StoredFolder, error: StoreError, now: datetime) -> None:
    factor: int = 2 ** min(stored_folder.tries, 10)
    delay = min(FIRST_RETRY_DELAY * factor, MAX_RETRY_DELAY)
    fields = {"problem": str(error)[:1000], "next_at": now + delay, "tries": stored_folder.tries + 1}
    StoredFolder.objects.filter(pk=stored_folder.pk).update(**fields)


def _blob(sha256: str) -> str:
    return f"datasets/{sha256}"
