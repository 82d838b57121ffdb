"""The way of a dataset version: upload -> check -> mapping -> canonical rows -> ready; and its deletion.

The file itself is read by a child process only (controlplane.datasets.validation); here are rows of the database and
names of files.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import IntegrityError, transaction
from django.db.models import Max, ProtectedError
from django.utils import timezone
from kombu.exceptions import KombuError

from controlplane.accounts.models import User
from controlplane.datasets.locking import held
from controlplane.datasets.mapping import ColumnMapping
from controlplane.datasets.models import Dataset, DatasetVersion
from controlplane.datasets.validation import TOO_MUCH

log = logging.getLogger(__name__)

CHECK_SECONDS = 1200
PROGRAM = ["-m", "controlplane.datasets.validation"]
PIECE = 2**20
SENT_AGAIN_AFTER = timedelta(seconds=20)
FORGOTTEN_AFTER_S = 3600
"""An upload in progress is younger than that."""


class DatasetError(Exception):
    """The dataset can't be used like this; the message is for people."""


class NameTaken(DatasetError):
    """There is a dataset of this name already."""


class TooLarge(DatasetError):
    """The file is larger than this installation allows."""


class NoSpace(DatasetError):
    """The disk has no room for the file."""


class Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def create_version(
    user: User | None, name: str, file_like: Readable, file_name: str, *, new: bool = False
) -> DatasetVersion:
    """Store an upload as the next version of the dataset `name`; made if there is none (`new`: only then).

    The file is whole on disk before the database knows of it; where either fails, nothing is left of both.
    """
    incoming = _received(file_like)
    try:
        with transaction.atomic():
            dataset, made = Dataset.objects.get_or_create(name=name, defaults={"owner": user})
            if new and not made:
                raise NameTaken(f"There is already a dataset “{name}”. Upload a new version on its page.")
            last = dataset.versions.aggregate(last=Max("number"))["last"] or 0
            version = DatasetVersion.objects.create(
                dataset=dataset,
                number=last + 1,
                file_name=shown_name(file_name),
                bytes=incoming.stat().st_size,
                queued_at=timezone.now(),
            )
            version.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            incoming.rename(version.source_path)
    except IntegrityError as error:
        raise NameTaken(f"Somebody else is uploading “{name}” at this moment. Try again.") from error
    finally:
        incoming.unlink(missing_ok=True)
    return version


def validate(version: DatasetVersion) -> None:
    """Do the step that is due, in a child process: the check of the file, or, with a mapping, its canonical rows.

    Safe to call twice, also at once: a lock on the folder lets one through, and a version that isn't waiting is left.
    """
    if not version.folder.is_dir():
        return
    with held(version.folder / "lock") as mine:
        if not mine or not _waiting(version).update(check_started_at=timezone.now()):
            return
        version.refresh_from_db()
        if version.mapping:
            _settle_mapping(version)
        else:
            _settle_check(version)


def apply_mapping(version: DatasetVersion, mapping: ColumnMapping) -> None:
    """Map the rows here and now. The pages use ask_for_rows, which leaves the work to the worker."""
    ask_for_rows(version, mapping, send=lambda _: None)
    validate(version)
    version.refresh_from_db()


def ask_for_rows(
    version: DatasetVersion, mapping: ColumnMapping, *, send: Callable[[DatasetVersion], None] | None = None
) -> bool:
    """Keep the mapping and have the canonical rows made. False: the version is not in a state for that."""
    ready_for_it = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.NEEDS_MAPPING)
    asked = ready_for_it.update(
        status=DatasetVersion.CHECKING, mapping=mapping.as_dict(), queued_at=timezone.now(), check_started_at=None
    )
    if asked:
        (send or send_to_worker)(version)
    return bool(asked)


def leave_bad_lines_out(version: DatasetVersion) -> bool:
    """Somebody decided to go on without the lines that can't be read."""
    if not version.usable_without_bad_lines:
        return False
    left = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.INVALID)
    return bool(left.update(status=DatasetVersion.NEEDS_MAPPING))


def send_to_worker(version: DatasetVersion) -> None:
    """Queue the check once the transaction is through. Without a broker the version waits; the sweep sends it again."""
    from controlplane.datasets.tasks import validate_version

    def send() -> None:
        if not settings.REDIS_URL:
            log.warning("REDIS_URL is not set: the check of dataset version %s waits", version.pk)
            return
        try:
            validate_version.apply_async((version.pk,), retry=False)
        except (KombuError, OSError):
            log.warning("No broker to queue the check of dataset version %s; it is sent again later", version.pk)

    transaction.on_commit(send)


def delete_version(version: DatasetVersion) -> None:
    """Delete a version and its files; refused while a run points at it."""
    _delete(version, [version.folder])


def delete_dataset(dataset: Dataset) -> None:
    _delete(dataset, [version.folder for version in dataset.versions.all()])


def sweep() -> None:
    """Send checks again that nobody is at, and remove files that no row knows of."""
    for version in DatasetVersion.objects.filter(status=DatasetVersion.CHECKING):
        asked = version.queued_at or version.created_at
        if timezone.now() - asked > SENT_AGAIN_AFTER and not _is_being_checked(version):
            send_to_worker(version)
    known = {str(pk) for pk in DatasetVersion.objects.values_list("pk", flat=True)}
    for path in _stored():
        if path.name not in known and time.time() - path.stat().st_mtime > FORGOTTEN_AFTER_S:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_being_checked(version: DatasetVersion) -> bool:
    if not version.folder.is_dir():
        return True  # its upload is gone: there is nothing to check
    with held(version.folder / "lock") as free:
        return not free


def shown_name(name: str) -> str:
    """A file name as text to show: no path, no control or direction characters, at most 255 characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(c for c in last if not unicodedata.category(c).startswith("C")).strip()
    return clean[:255] or "upload"


def incoming_folder() -> Path:
    """Where files lie until they are whole: the same disk as the datasets, so that moving them copies nothing."""
    folder = Path(settings.DATA_DIR) / "datasets" / "incoming"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _received(source: Readable) -> Path:
    path = incoming_folder() / f"{os.getpid()}-{os.urandom(8).hex()}"
    if isinstance(source, TemporaryUploadedFile) and source.size and source.size <= settings.DATASET_MAX_BYTES:
        # It lies in the same folder, whole: no second copy, unless the file system knows no hard links.
        with suppress(OSError):
            os.link(source.temporary_file_path(), path)
            return path
        source.seek(0)
    try:
        with path.open("xb") as file:
            size = 0
            for piece in _pieces(source):
                size += len(piece)
                if size > settings.DATASET_MAX_BYTES:
                    limit = settings.DATASET_MAX_BYTES // 2**20
                    raise TooLarge(f"The file is larger than {limit:,} MiB, the most this installation takes.")
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise NoSpace(f"The file could not be stored: {os.strerror(error.errno or 0).lower()}.") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _pieces(source: Readable) -> Iterator[bytes]:
    while piece := source.read(PIECE):
        yield piece


def _waiting(version: DatasetVersion) -> Any:
    return DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.CHECKING)


def _settle_check(version: DatasetVersion) -> None:
    report = _child(version, "check", None)
    broken = bool(report["file_error"] or report["error_count"])
    _waiting(version).update(
        status=DatasetVersion.INVALID if broken else DatasetVersion.NEEDS_MAPPING,
        rows=report.get("rows", 0),
        columns=[column["name"] for column in report.get("columns", [])],
        report=report,
    )


def _settle_mapping(version: DatasetVersion) -> None:
    mapped = _child(version, "map", version.mapping)
    if not mapped.get("usable"):
        kept = {"mapped": mapped}
        _waiting(version).update(status=DatasetVersion.NEEDS_MAPPING, report=version.report | kept)
        return
    _waiting(version).update(
        status=DatasetVersion.READY,
        rows=mapped["rows"],
        columns=mapped["names"],
        sha256=mapped["sha256"],
        report=version.report | {"mapped": mapped},
    )


def _child(version: DatasetVersion, what: str, given: Any) -> dict[str, Any]:
    """The report of the checking process; one that was stopped by its limits reports just that."""
    report = version.folder / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, *PROGRAM, str(version.folder), what]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(given).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=settings.BASE_DIR,
            # PYTHONPATH: where an installation keeps its packages beside the interpreter instead of in it.
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | {"LANG": "C.UTF-8"},
            timeout=CHECK_SECONDS,
            check=False,
        )
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(report.read_text())
            return found
        log.error("Check of dataset version %s ended with %s: %s", version.pk, done.returncode, _tail(done.stderr))
        limited = done.returncode == TOO_MUCH or done.returncode < 0
    except subprocess.TimeoutExpired:
        log.exception("Check of dataset version %s ran out of time", version.pk)
        limited = True
    why = "Checking this file took more memory or time than is allowed. Split it into smaller files."
    if not limited:
        why = "The check itself could not run on the server; its log says why. Nothing is known of the file."
    return {"file_error": why, "error_count": 0, "errors": [], "kinds": {}, "preview": [], "rows": 0}


def _tail(output: bytes) -> str:
    return output[-2000:].decode("utf-8", "replace")


def _delete(what: Dataset | DatasetVersion, folders: list[Path]) -> None:
    try:
        with transaction.atomic():
            what.delete()
            for folder in folders:
                transaction.on_commit(partial(shutil.rmtree, folder, ignore_errors=True))
    except ProtectedError as error:
        raise DatasetError("Runs were trained on it, and their record needs it: it can't be deleted.") from error


def _stored() -> Iterator[Path]:
    yield from incoming_folder().iterdir()
    yield from (p for p in incoming_folder().parent.iterdir() if p.name.isdigit())
