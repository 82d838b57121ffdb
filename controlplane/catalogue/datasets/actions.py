"""User actions on dataset versions: add one from a source, map it, continue without its bad rows, retry, cancel.

Each function changes the database and queues the remaining work for controlplane.catalogue.datasets.worker.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from controlplane.catalogue.datasets.errors import DatasetError, NameTaken
from controlplane.catalogue.datasets.folders import make_folder, remove_folder, take_over
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion, Dataset, DatasetVersion, column_names, rows_of
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.receiving import Readable, receive, shown_name
from controlplane.catalogue.datasets.sources import Source
from controlplane.catalogue.datasets.work_queue import send_to_worker
from controlplane.platform.accounts.models import User
from controlplane.platform.activity.recording import record

DELETED, BACK_TO_MAPPING, TOO_LATE = "deleted", "back", ""
DEFAULT_SHARE, DEFAULT_SEED = 0.1, 42
VersionT = TypeVar("VersionT", DatasetVersion, CorpusVersion)


def create_from_upload(
    user: User | None,
    name: str,
    file: Readable,
    file_name: str,
    *,
    new: bool = False,
    mapping: ColumnMapping | None = None,
) -> DatasetVersion:
    """Store an upload as the next version of the dataset `name`, queue its check and, with a `mapping`, its import.

    The dataset is created if it doesn't exist; with `new`, it must not exist. If anything fails, nothing is stored.
    """
    with receive(file) as arrived, new_version(user, name, new=new) as version:
        version.file_name = shown_name(file_name)
        version.bytes, version.source_sha256 = arrived.bytes, arrived.sha256
        _set_mapping(version, mapping)
        version.save()
        make_folder(version.folder)
        arrived.path.rename(version.folder / files.SOURCE)
    return version


def create_from_source(
    user: User | None, name: str, source: Source, *, new: bool = False, mapping: ColumnMapping | None = None
) -> DatasetVersion:
    """Queue the next version of the dataset `name`, whose source the worker fetches, checks and, with a `mapping`,
    imports. `new` has the same meaning as for an upload."""
    with new_version(user, name, new=new) as version:
        _set_mapping(version, mapping)
        version.status, version.source_kind = DatasetVersion.FETCHING, source.kind
        version.source = source.as_dict()
        version.file_name = shown_name(source.title.replace("/", "∕"))
        version.save()
        make_folder(version.folder)
    return version


def map_again(user: User | None, old_version: DatasetVersion) -> DatasetVersion:
    """Create a version of the same source to be mapped differently, since a ready version never changes.

    The check's results are reused, so the new version can be mapped at once, or awaits a decision about its bad rows as
    the old one does. The old mapping is proposed.
    """
    if not (old_version.folder / files.SOURCE).is_file():
        raise DatasetError("This version was derived from another version. Map that version again, then filter it.")
    if old_version.status in DatasetVersion.AT_WORK or (
        old_version.status == DatasetVersion.INVALID and not old_version.report.get("rows")
    ):
        raise DatasetError("This version's file wasn't read to the end.")
    report = {name: value for name, value in old_version.report.items() if name != "mapped"}
    with new_version(user, old_version.dataset.name, new=False) as version:
        for field in ("file_name", "bytes", "source_sha256", "source_kind", "source", "mapping", "split"):
            setattr(version, field, getattr(old_version, field))
        version.tokenizer, version.token_limit = old_version.tokenizer, old_version.token_limit
        version.parent, version.report = old_version, report
        version.rows, version.columns = rows_of(report), column_names(report)
        undecided = old_version.status == DatasetVersion.INVALID
        version.status = DatasetVersion.INVALID if undecided else DatasetVersion.NEEDS_MAPPING
        version.queued_at = None
        version.save()
        take_over(old_version.folder, version.folder)
    return version


def request_import(
    version: DatasetVersion,
    mapping: ColumnMapping,
    *,
    share: float = DEFAULT_SHARE,
    seed: int = DEFAULT_SEED,
    tokenizer: str = "",
    limit: int | None = None,
) -> bool:
    """Store the mapping and queue the import, and return whether the version's state allowed that.

    `share` is the validation share of the rows, `tokenizer` the sha256 of the Tokenizer that counts tokens, and `limit`
    the number of tokens above which prompts are reported.
    """
    unmapped = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.NEEDS_MAPPING)
    changed = unmapped.update(
        status=DatasetVersion.CHECKING,
        mapping=mapping.as_dict(),
        split={"share": share, "seed": seed},
        tokenizer=tokenizer,
        token_limit=limit,
        queued_at=timezone.now(),
        check_started_at=None,
    )
    if changed:
        record(version.dataset, f"Mapped the columns of version {version.number}")
        send_to_worker(version)
    return bool(changed)


def leave_bad_rows_out(version: DatasetVersion) -> bool:
    """Continue without the rows that no mapping can use, and return whether that was still possible."""
    if not version.usable_without_bad_rows:
        return False
    updated = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.INVALID)
    return bool(updated.update(status=DatasetVersion.NEEDS_MAPPING))


def try_again(version: DatasetVersion) -> bool:
    """Retry a step that failed because of the server, its disk or the hub, and return whether it was still possible."""
    if not version.may_be_tried_again:
        return False
    has_source = (version.folder / files.SOURCE).is_file() or version.source_kind == DatasetVersion.DERIVED
    failed = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.INVALID)
    changed = failed.update(
        status=DatasetVersion.CHECKING if has_source else DatasetVersion.FETCHING,
        report={},
        queued_at=timezone.now(),
        check_started_at=None,
    )
    if changed:
        send_to_worker(version)
    return bool(changed)


def cancel(version: DatasetVersion) -> str:
    """Cancel the current or queued step, which the worker notices within half a second. Return BACK_TO_MAPPING if the
    version can be mapped again, DELETED if it was deleted with its files, or TOO_LATE if the step had finished."""
    with transaction.atomic():
        # Locked, so that nobody adds a version at the same time.
        dataset = Dataset.objects.select_for_update().filter(pk=version.dataset_id).first()
        pending = DatasetVersion.objects.filter(pk=version.pk, status__in=DatasetVersion.AT_WORK)
        current = pending.select_for_update().first()  # reread, since someone may have mapped it
        if dataset is None or current is None:
            return TOO_LATE
        if current.mapping and current.source_kind != DatasetVersion.DERIVED:
            pending.update(status=DatasetVersion.NEEDS_MAPPING, queued_at=None, check_started_at=None)
            return BACK_TO_MAPPING
        pending.delete()
        if not dataset.versions.exists():
            dataset.delete()
        transaction.on_commit(partial(remove_folder, version.folder))
    return DELETED


@contextmanager
def new_version(user: User | None, name: str, *, new: bool) -> Iterator[DatasetVersion]:
    """Create the next version of the dataset `name`, with `new` the first one, for the block to fill and save, and then
    queue its next step, if any. Raises NameTaken. If the block fails, nothing is left."""
    with numbered(DatasetVersion(created_by=user, queued_at=timezone.now()), Dataset, name, new=new) as version:
        yield version
        if version.status in DatasetVersion.AT_WORK:
            send_to_worker(version)


@contextmanager
def numbered(
    version: VersionT, items: type[Dataset] | type[Corpus], name: str, *, new: bool = False
) -> Iterator[VersionT]:
    """Make `version` the next one of the item `name`, creating the item if necessary, for the block to fill and save.

    If the block fails, nothing is left in the database or on disk. Raises NameTaken if the item exists despite `new`.
    """
    try:
        with transaction.atomic():
            item, is_new = items.objects.get_or_create(name=name, defaults={"owner": version.created_by})
            if new and not is_new:
                raise NameTaken(f"There is already a dataset “{name}”. Upload a new version on its page.")
            locked_item = items.objects.select_for_update().get(pk=item.pk)  # one number at a time
            setattr(version, str(items._meta.model_name), locked_item)
            version.number = (locked_item.versions.aggregate(last=Max("number"))["last"] or 0) + 1
            yield version
    except BaseException as error:
        if version.pk is not None:
            shutil.rmtree(version.folder, ignore_errors=True)
        if isinstance(error, (IntegrityError, items.DoesNotExist)):
            raise NameTaken(f"Someone else is changing “{name}” right now. Try again.") from error
        raise


def _set_mapping(version: DatasetVersion, mapping: ColumnMapping | None) -> None:
    if mapping:
        version.mapping, version.split = mapping.as_dict(), {"share": DEFAULT_SHARE, "seed": DEFAULT_SEED}
