"""The background worker: fetches a version's source, checks it, imports or derives its rows, and cleans up.

Each step runs in a child process and ends with one UPDATE that applies only while the step is still wanted. A step
that was interrupted (a killed worker, a full disk) starts again from the beginning.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.catalogue.datasets import reader_process
from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.fetching.starting import fetch
from controlplane.catalogue.datasets.folders import LOCK, held
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer, column_names, rows_of
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, checked_part
from controlplane.catalogue.datasets.receiving import incoming_folder
from controlplane.catalogue.datasets.work_queue import send_to_worker

log = logging.getLogger(__name__)

SLOTS = 2
"""Datasets at once on one machine. The control worker has more processes than that: the tick never waits for them."""
SENT_AGAIN_AFTER = timedelta(seconds=20)
OF_THE_FILE = ("columns", "preview", "recognised")
"""Parts of the first check's report, which a check with a mapping keeps: that may have seen other columns."""
FORGOTTEN_AFTER_S = 3600
"""An upload in progress is younger than that."""
Fields = dict[str, Any]


def work(version: DatasetVersion) -> None:
    """Do all that is due. Safe to call twice, also at once: a lock on the folder lets one through."""
    with slot() as free:
        if not free:
            return  # whoever has the slots sends it at their end
        _work(version)
    _send_the_next(version)


def sweep() -> None:
    """Send work again that nobody is at, and remove files that no row knows of."""
    for version in DatasetVersion.objects.filter(status__in=DatasetVersion.AT_WORK).defer("report"):
        requested_at = version.queued_at or version.created_at
        if timezone.now() - requested_at > SENT_AGAIN_AFTER and not _is_at_work(version):
            send_to_worker(version)
    known = {str(pk) for pk in DatasetVersion.objects.values_list("pk", flat=True)}
    for path in _stored():
        if path.name not in known and time.time() - path.stat().st_mtime > FORGOTTEN_AFTER_S:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _work(version: DatasetVersion) -> None:
    folder = version.folder
    if not folder.is_dir():
        return
    with held(folder / LOCK) as mine:
        while mine and _waiting(version).update(check_started_at=timezone.now()):
            try:
                version.refresh_from_db()
            except DatasetVersion.DoesNotExist:  # cancelled or deleted a moment ago
                break
            step, kept = _due(version)
            _clear(folder, kept)
            try:
                fields = step(version)
            except reader_process.Unwanted:
                _clear(folder, kept)
                continue
            # Only if it is still requested as when it was started: a cancelled step no longer changes anything.
            if not _waiting(version).filter(queued_at=version.queued_at).update(**storable(fields)):
                _clear(folder, kept)
            (folder / files.PROGRESS).unlink(missing_ok=True)
        if mine and not DatasetVersion.objects.filter(pk=version.pk).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _send_the_next(done: DatasetVersion) -> None:
    """Its message may have come while there was no slot."""
    waiting = DatasetVersion.objects.filter(status__in=DatasetVersion.AT_WORK, check_started_at=None)
    for version in waiting.exclude(pk=done.pk).defer("report").order_by("queued_at"):
        if not _is_at_work(version):
            send_to_worker(version)
            return


def _due(version: DatasetVersion) -> tuple[Callable[[DatasetVersion], Fields], tuple[str, ...]]:
    """The step, and the files it begins with."""
    if version.status == DatasetVersion.FETCHING:
        return _fetch, ()
    if version.source_kind == DatasetVersion.DERIVED:
        return _derive, ()
    if version.mapping and _is_checked(version):
        return _import, (files.SOURCE, files.REPORT, files.PROBLEMS)
    return _check, (files.SOURCE,)


def _is_checked(version: DatasetVersion) -> bool:
    """True if the check used this mapping, both on disk (which an import reads) and in the database."""
    try:
        on_disk = json.loads((version.folder / files.REPORT).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(on_disk.get("checked") == version.report.get("checked") == _checked_part(version))


def _checked_part(version: DatasetVersion) -> dict[str, Any] | None:
    return checked_part(ColumnMapping.from_dict(version.mapping)).as_dict() if version.mapping else None


def _fetch(version: DatasetVersion) -> Fields:
    try:
        found = fetch(version, _wanted(version))
    except ChildFailed as error:
        return {"status": DatasetVersion.INVALID, "report": {"file_error": error.as_dict()}}
    return {"status": DatasetVersion.CHECKING, **found}


def _check(version: DatasetVersion) -> Fields:
    """Check with the chosen mapping, which an import follows, or the recognised one. The import counts tokens."""
    try:
        report = _child(version, "check", {"mapping": _checked_part(version)}, files.REPORT)
    except ChildFailed as error:
        report = {"file_error": error.as_dict()}
    failed = report.get("file_error")
    if version.mapping:
        report |= {name: version.report[name] for name in OF_THE_FILE if name in version.report}
        return _not_imported(version, {"usable": False, "file_error": failed}) if failed else {"report": report}
    return {
        "status": DatasetVersion.INVALID if failed or report.get("broken_rows") else DatasetVersion.NEEDS_MAPPING,
        "rows": rows_of(report),
        "columns": column_names(report),
        "report": report,
    }


def _import(version: DatasetVersion) -> Fields:
    arguments = {
        "mapping": version.mapping,
        "split": version.split,
        "tokenizer": _tokenizer(version),
        "token_limit": version.token_limit,
        "drop_broken": True,  # with such rows a version comes here only after somebody said so
    }
    mapped = _mapped(version, "import", arguments)
    if not mapped.get("usable"):
        return _not_imported(version, mapped)
    return _made_ready(version, mapped)


def _not_imported(version: DatasetVersion, mapped: dict[str, Any]) -> Fields:
    return {"status": DatasetVersion.NEEDS_MAPPING, "report": version.report | {"mapped": mapped}}


def _derive(version: DatasetVersion) -> Fields:
    parent = version.parent
    if parent is None or not (parent.folder / files.ROWS).is_file():
        gone = {"kind": "gone", "message": "The version that this one is made of is gone.", "advice": ""}
        return {"status": DatasetVersion.INVALID, "report": {"file_error": gone}}
    arguments = {
        "parent": str(parent.folder),
        "filter": version.source.get("filter", {}),
        "tokenizer": _tokenizer(version),
        "token_limit": version.token_limit,
    }
    mapped = _mapped(version, "derive", arguments)
    if not mapped.get("usable"):
        return {"status": DatasetVersion.INVALID, "report": {"file_error": mapped["file_error"], "mapped": mapped}}
    return _made_ready(version, mapped)


def _made_ready(version: DatasetVersion, mapped: dict[str, Any]) -> Fields:
    return {
        "status": DatasetVersion.READY,
        "rows": mapped["rows"],
        "validation_rows": mapped["validation_rows"],
        "columns": mapped["columns"],
        "sha256": mapped["sha256"],
        "ready_at": timezone.now(),
        "report": version.report | {"mapped": mapped},
    }


def _mapped(version: DatasetVersion, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return _child(version, verb, arguments, files.MAPPED)
    except ChildFailed as error:
        return {"usable": False, "file_error": error.as_dict()}


def _child(version: DatasetVersion, verb: str, arguments: dict[str, Any], answer: str) -> dict[str, Any]:
    """Read the child's file `answer`. Raises ChildFailed and Unwanted."""
    backend = reader_process.backend_for(ColumnMapping.from_dict(arguments.get("mapping") or {}))
    reader_process.work(version.folder, verb, arguments | backend, is_wanted=_wanted(version))
    try:
        found: dict[str, Any] = json.loads((version.folder / answer).read_bytes())
    except (OSError, ValueError) as error:
        log.exception("%s of dataset version %s left no answer", verb, version.pk)
        raise ChildFailed("server", reader_process.BROKEN) from error
    return found


def _wanted(version: DatasetVersion) -> Callable[[], bool]:
    this_request = _waiting(version).filter(queued_at=version.queued_at)
    return lambda: this_request.all().exists()


def _waiting(version: DatasetVersion) -> QuerySet[DatasetVersion]:
    return DatasetVersion.objects.filter(pk=version.pk, status__in=DatasetVersion.AT_WORK)


def _tokenizer(version: DatasetVersion) -> str | None:
    """The folder of the files to count with."""
    known = Tokenizer.objects.filter(pk=version.tokenizer).first() if version.tokenizer else None
    return str(known.folder) if known else None


def _clear(folder: Path, kept: tuple[str, ...]) -> None:
    """Remove what a broken step left."""
    for path in folder.iterdir():
        if path.name not in (*kept, LOCK):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def storable(value: Any) -> Any:
    """A value that every database can store: text without NULs or lone surrogates, and no NaN or infinity."""
    if isinstance(value, str):
        return value.replace("\x00", "␀").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {storable(name): storable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [storable(inner) for inner in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


@contextmanager
def slot() -> Iterator[bool]:
    for number in range(SLOTS):
        with held(incoming_folder().parent / f"slot{number}.lock") as mine:
            if mine:
                yield True
                return
    yield False


def _is_at_work(version: DatasetVersion) -> bool:
    if not version.folder.is_dir():
        return True  # its files are gone: there is nothing to do
    with held(version.folder / LOCK) as free:
        return not free


def _stored() -> Iterator[Path]:
    yield from incoming_folder().iterdir()
    yield from (path for path in incoming_folder().parent.iterdir() if path.name.isdigit())
