"""The background worker: fetches a version's source, checks it, imports or derives its rows, and cleans up.

Each step runs in a child process and ends with one UPDATE that applies only while the step is still wanted. A step
that was interrupted (a killed worker, a full disk) starts again from the beginning.
"""

import json
import logging
import shutil
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
from controlplane.catalogue.datasets.folders import LOCK, remove_orphans, try_lock
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer, column_names, rows_of
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, checked_part
from controlplane.catalogue.datasets.receiving import incoming_folder
from controlplane.catalogue.datasets.work_queue import send_to_worker

log = logging.getLogger(__name__)

SLOTS = 2
"""Number of datasets processed at a time. The control worker has more processes, so they never delay the tick."""
RESEND_AFTER = timedelta(seconds=20)
KEPT_REPORT_PARTS = ("columns", "preview", "recognised")
"""Parts of the first check's report that a check with a mapping doesn't replace, since it may see other columns."""
Fields = dict[str, Any]


def process(version: DatasetVersion) -> None:
    """Process all due steps of a version. Concurrent calls are safe, since a lock on the folder admits one process."""
    with slot() as has_slot:
        if not has_slot:
            return  # a process that holds a slot sends the version when it ends
        _process(version)
    _send_next(version)


def reconcile() -> None:
    """Resend the versions that no process is working on, and remove files of versions no longer in the database."""
    for version in DatasetVersion.objects.filter(status__in=DatasetVersion.AT_WORK).defer("report"):
        requested_at = version.queued_at or version.created_at
        if timezone.now() - requested_at > RESEND_AFTER and not _is_locked(version):
            send_to_worker(version)
    keys = {str(pk) for pk in DatasetVersion.objects.values_list("pk", flat=True)}
    folders = (path for path in incoming_folder().parent.iterdir() if path.name.isdigit())
    remove_orphans([*incoming_folder().iterdir(), *folders], keys)


def _process(version: DatasetVersion) -> None:
    folder = version.folder
    if not folder.is_dir():
        return
    with try_lock(folder / LOCK) as has_lock:
        while has_lock and _if_waiting(version).update(check_started_at=timezone.now()):
            try:
                version.refresh_from_db()
            except DatasetVersion.DoesNotExist:  # cancelled or deleted a moment ago
                break
            step, input_files = _next_step(version)
            _clear(folder, input_files)
            try:
                fields = step(version)
            except reader_process.ResultUnwanted:
                _clear(folder, input_files)
                continue
            # Only if the request is still the one that started the step, so that a cancelled step changes nothing.
            if not _if_waiting(version).filter(queued_at=version.queued_at).update(**storable(fields)):
                _clear(folder, input_files)
            (folder / files.PROGRESS).unlink(missing_ok=True)
        if has_lock and not DatasetVersion.objects.filter(pk=version.pk).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _send_next(processed_version: DatasetVersion) -> None:
    """Send the next waiting version, whose task may have arrived while no slot was free."""
    waiting_versions = DatasetVersion.objects.filter(status__in=DatasetVersion.AT_WORK, check_started_at=None)
    for version in waiting_versions.exclude(pk=processed_version.pk).defer("report").order_by("queued_at"):
        if not _is_locked(version):
            send_to_worker(version)
            return


def _next_step(version: DatasetVersion) -> tuple[Callable[[DatasetVersion], Fields], tuple[str, ...]]:
    if version.status == DatasetVersion.FETCHING:
        return _fetch, ()
    if version.source_kind == DatasetVersion.DERIVED:
        return _derive, ()
    if version.mapping and _is_checked(version):
        return _import, (files.SOURCE, files.REPORT, files.PROBLEMS)
    return _check, (files.SOURCE,)


def _is_checked(version: DatasetVersion) -> bool:
    """Return whether the last check used this mapping, according to the report on disk and the one in the database."""
    try:
        stored_report = json.loads((version.folder / files.REPORT).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(stored_report.get("checked") == version.report.get("checked") == _checked_part(version))


def _checked_part(version: DatasetVersion) -> dict[str, Any] | None:
    return checked_part(ColumnMapping.from_dict(version.mapping)).as_dict() if version.mapping else None


def _fetch(version: DatasetVersion) -> Fields:
    try:
        fields = fetch(version, _is_wanted(version))
    except ChildFailed as error:
        return {"status": DatasetVersion.INVALID, "report": {"file_error": error.as_dict()}}
    return {"status": DatasetVersion.CHECKING, **fields}


def _check(version: DatasetVersion) -> Fields:
    """Check with the chosen mapping, before its import, or the recognised one, and return the fields to update."""
    try:
        report = _run_verb(version, "check", {"mapping": _checked_part(version)}, files.REPORT)
    except ChildFailed as error:
        report = {"file_error": error.as_dict()}
    problem = report.get("file_error")
    if version.mapping:
        report |= {name: version.report[name] for name in KEPT_REPORT_PARTS if name in version.report}
        return _import_failed(version, {"usable": False, "file_error": problem}) if problem else {"report": report}
    return {
        "status": DatasetVersion.INVALID if problem or report.get("broken_rows") else DatasetVersion.NEEDS_MAPPING,
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
    }
    mapped = _mapped_rows(version, "import", arguments)
    return _ready_fields(version, mapped) if mapped.get("usable") else _import_failed(version, mapped)


def _import_failed(version: DatasetVersion, mapped: dict[str, Any]) -> Fields:
    return {"status": DatasetVersion.NEEDS_MAPPING, "report": version.report | {"mapped": mapped}}


def _derive(version: DatasetVersion) -> Fields:
    parent = version.parent
    if parent is None or not (parent.folder / files.ROWS).is_file():
        message = "The version that this one was derived from no longer exists."
        file_error = {"kind": "gone", "message": message, "advice": ""}
        return {"status": DatasetVersion.INVALID, "report": {"file_error": file_error}}
    arguments = {
        "parent": str(parent.folder),
        "filter": version.source.get("filter", {}),
        "tokenizer": _tokenizer(version),
        "token_limit": version.token_limit,
    }
    mapped = _mapped_rows(version, "derive", arguments)
    if not mapped.get("usable"):
        return {"status": DatasetVersion.INVALID, "report": {"file_error": mapped["file_error"], "mapped": mapped}}
    return _ready_fields(version, mapped)


def _ready_fields(version: DatasetVersion, mapped: dict[str, Any]) -> Fields:
    return {
        "status": DatasetVersion.READY,
        "rows": mapped["rows"],
        "validation_rows": mapped["validation_rows"],
        "columns": mapped["columns"],
        "sha256": mapped["sha256"],
        "ready_at": timezone.now(),
        "report": version.report | {"mapped": mapped},
    }


def _mapped_rows(version: DatasetVersion, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return _run_verb(version, verb, arguments, files.MAPPED_FILE)
    except ChildFailed as error:
        return {"usable": False, "file_error": error.as_dict()}


def _run_verb(version: DatasetVersion, verb: str, arguments: dict[str, Any], result_file: str) -> dict[str, Any]:
    """Run a verb in the child, and return the content of its `result_file`. Raises ChildFailed if the child fails or
    writes no result, and ResultUnwanted once the version is no longer wanted."""
    backend = reader_process.backend_for(ColumnMapping.from_dict(arguments.get("mapping") or {}))
    reader_process.run(version.folder, verb, arguments | backend, is_wanted=_is_wanted(version))
    try:
        content: dict[str, Any] = json.loads((version.folder / result_file).read_bytes())
    except (OSError, ValueError) as error:
        log.exception("%s of dataset version %s wrote no result", verb, version.pk)
        raise ChildFailed("server", reader_process.READER_FAILED) from error
    return content


def _is_wanted(version: DatasetVersion) -> Callable[[], bool]:
    this_request = _if_waiting(version).filter(queued_at=version.queued_at)
    return lambda: this_request.all().exists()


def _if_waiting(version: DatasetVersion) -> QuerySet[DatasetVersion]:
    return DatasetVersion.objects.filter(pk=version.pk, status__in=DatasetVersion.AT_WORK)


def _tokenizer(version: DatasetVersion) -> str | None:
    tokenizer = Tokenizer.objects.filter(pk=version.tokenizer).first() if version.tokenizer else None
    return str(tokenizer.folder) if tokenizer else None


def _clear(folder: Path, input_files: tuple[str, ...]) -> None:
    for path in folder.iterdir():
        if path.name not in (*input_files, LOCK):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def storable(value: Any) -> Any:
    """Return a value that every database can store: no NULs or lone surrogates in strings, no NaN or infinity."""
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
    """Take one of the SLOTS for the block, and yield whether one was free."""
    for number in range(SLOTS):
        with try_lock(incoming_folder().parent / f"slot{number}.lock") as has_lock:
            if has_lock:
                yield True
                return
    yield False


def _is_locked(version: DatasetVersion) -> bool:
    if not version.folder.is_dir():
        return True  # its files are gone, so no step can run
    with try_lock(version.folder / LOCK) as has_lock:
        return not has_lock
