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
    must_be_new: bool = False,
    mapping: ColumnMapping | None = None,
) -> DatasetVersion:
    """Store an upload as the next version of the dataset `name`, queue its check and, with a `mapping`, its import.

    A missing dataset is created. Raises NameTaken if it exists despite `must_be_new`. On failure, nothing is stored.
    """
    with receive(file) as received, new_version(user, name, must_be_new=must_be_new) as version:
        version.file_name = shown_name(file_name)
        version.bytes, version.source_sha256 = received.bytes, received.sha256
        _set_mapping(version, mapping)
        version.save()
        make_folder(version.folder)
        received.path.rename(version.folder / files.SOURCE)
    return version


def create_from_source(
    user: User | None, name: str, source: Source, *, must_be_new: bool = False, mapping: ColumnMapping | None = None
) -> DatasetVersion:
    """Queue the next version of the dataset `name`, whose source the worker fetches, checks and, with a `mapping`,
    imports. `must_be_new` works as in `create_from_upload`."""
    with new_version(user, name, must_be_new=must_be_new) as version:
        _set_mapping(version, mapping)
        version.status, version.source_kind = DatasetVersion.FETCHING, source.kind
        version.source = source.as_dict()
        version.file_name = shown_name(source.title.replace("/", "∕"))
        version.save()
        make_folder(version.folder)
    return version


def map_again(user: User | None, old_version: DatasetVersion) -> DatasetVersion:
    """Create a version of the same source to be mapped differently, since a ready version never changes. The check's
    results are reused, so the new version can be mapped at once or, if the old one awaits a decision about its bad
    rows, awaits the same decision. The old mapping is proposed. Raises DatasetError for a derived version, or if the
    file wasn't read to the end."""
    if not (old_version.folder / files.SOURCE).is_file():
        raise DatasetError("This version was derived from another version. Map that version again, then filter it.")
    if old_version.status in DatasetVersion.AT_WORK or (
        old_version.status == DatasetVersion.INVALID and not old_version.report.get("rows")
    ):
        raise DatasetError("This version's file wasn't read to the end.")
    report = {name: value for name, value in old_version.report.items() if name != "mapped"}
    with new_version(user, old_version.dataset.name, must_be_new=False) as version:
        for field in ("file_name", "bytes", "source_sha256", "source_kind", "source", "mapping", "split"):
            setattr(version, field, getattr(old_version, field))
        version.tokenizer, version.token_limit = old_version.tokenizer, old_version.token_limit
        version.parent, version.report = old_version, report
        version.rows, version.columns = rows_of(report), column_names(report)
        awaits_decision = old_version.status == DatasetVersion.INVALID
        version.status = DatasetVersion.INVALID if awaits_decision else DatasetVersion.NEEDS_MAPPING
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
    versions = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.NEEDS_MAPPING)
    updated_count = versions.update(
        status=DatasetVersion.CHECKING,
        mapping=mapping.as_dict(),
        split={"share": share, "seed": seed},
        tokenizer=tokenizer,
        token_limit=limit,
        queued_at=timezone.now(),
        check_started_at=None,
    )
    if updated_count:
        record(version.dataset, f"Mapped the columns of version {version.number}")
        send_to_worker(version)
    return bool(updated_count)


def leave_bad_rows_out(version: DatasetVersion) -> bool:
    """Continue without the rows that no mapping can use, and return whether that was still possible."""
    if not version.usable_without_bad_rows:
        return False
    versions = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.INVALID)
    return bool(versions.update(status=DatasetVersion.NEEDS_MAPPING))


def try_again(version: DatasetVersion) -> bool:
    """Retry a step that failed because of the server, its disk or the hub, and return whether that was possible."""
    if not version.may_be_tried_again:
        return False
    has_source = (version.folder / files.SOURCE).is_file() or version.source_kind == DatasetVersion.DERIVED
    versions = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.INVALID)
    updated_count = versions.update(
        status=DatasetVersion.CHECKING if has_source else DatasetVersion.FETCHING,
        report={},
        queued_at=timezone.now(),
        check_started_at=None,
    )
    if updated_count:
        send_to_worker(version)
    return bool(updated_count)


def cancel(version: DatasetVersion) -> str:
    """Cancel the current or queued step, which the worker notices within half a second. Return BACK_TO_MAPPING if the
    version can be mapped again, DELETED if it was deleted with its files, or TOO_LATE if the step had finished."""
    with transaction.atomic():
        # Locked, so that nobody adds a version at the same time.
        dataset = Dataset.objects.select_for_update().filter(pk=version.dataset_id).first()
        busy_versions = DatasetVersion.objects.filter(pk=version.pk, status__in=DatasetVersion.AT_WORK)
        busy_version = busy_versions.select_for_update().first()  # reread, since someone may have mapped it
        if dataset is None or busy_version is None:
            return TOO_LATE
        if busy_version.mapping and busy_version.source_kind != DatasetVersion.DERIVED:
            busy_versions.update(status=DatasetVersion.NEEDS_MAPPING, queued_at=None, check_started_at=None)
            return BACK_TO_MAPPING
        busy_versions.delete()
        if not dataset.versions.exists():
            dataset.delete()
        transaction.on_commit(partial(remove_folder, version.folder))
    return DELETED


@contextmanager
def new_version(user: User | None, name: str, *, must_be_new: bool) -> Iterator[DatasetVersion]:
    """Create the next version of the dataset `name` for the block to fill and save, then queue its next step, if any.
    Raises NameTaken as `numbered` does. If the block fails, nothing is stored."""
    draft = DatasetVersion(created_by=user, queued_at=timezone.now())
    with numbered(draft, Dataset, name, must_be_new=must_be_new) as version:
        yield version
        if version.status in DatasetVersion.AT_WORK:
            send_to_worker(version)


@contextmanager
def numbered(
    version: VersionT, item_class: type[Dataset] | type[Corpus], name: str, *, must_be_new: bool = False
) -> Iterator[VersionT]:
    """Assign `version` the next number of the item `name`, which is created if necessary, for the block to save. If the
    block fails, nothing is left in the database or on disk. Raises NameTaken if the item `must_be_new` but the name is
    in use, or while someone else is changing the item."""
    try:
        with transaction.atomic():
            item, is_new = item_class.objects.get_or_create(name=name, defaults={"owner": version.created_by})
            if must_be_new and not is_new:
                raise NameTaken(f"There is already a dataset “{name}”. Upload a new version on its page.")
            locked_item = item_class.objects.select_for_update().get(pk=item.pk)  # one number at a time
            setattr(version, str(item_class._meta.model_name), locked_item)
            version.number = (locked_item.versions.aggregate(last=Max("number"))["last"] or 0) + 1
            yield version
    except BaseException as error:
        if version.pk is not None:
            shutil.rmtree(version.folder, ignore_errors=True)
        if isinstance(error, (IntegrityError, item_class.DoesNotExist)):
            raise NameTaken(f"Someone else is changing “{name}” right now. Try again.") from error
        raise


def _set_mapping(version: DatasetVersion, mapping: ColumnMapping | None) -> None:
    if mapping:
        version.mapping, version.split = mapping.as_dict(), {"share": DEFAULT_SHARE, "seed": DEFAULT_SEED}
