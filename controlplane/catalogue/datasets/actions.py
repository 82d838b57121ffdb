"""User actions on a dataset version: add one from a source, map it, continue without its bad rows, try again, cancel.

Each function changes the database and queues the rest for the worker (controlplane.catalogue.datasets.worker).
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
from controlplane.catalogue.datasets.receiving import Readable, received, shown_name
from controlplane.catalogue.datasets.sources import Source
from controlplane.catalogue.datasets.work_queue import send_to_worker
from controlplane.platform.accounts.models import User
from controlplane.platform.activity.recording import record

DELETED, BACK, TOO_LATE = "deleted", "back", ""
SHARE, SEED = 0.1, 42
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
    """Store an upload as the next version of the dataset `name`, created if missing (`new`: required to be missing),
    and queue its check; with a `mapping` also its import. The file is complete on disk before its row exists; if either
    fails, both are removed."""
    with received(file) as arrived, new_version(user, name, new=new) as version:
        version.file_name = shown_name(file_name)
        version.bytes, version.source_sha256 = arrived.bytes, arrived.sha256
        _map(version, mapping)
        version.save()
        make_folder(version.folder)
        arrived.path.rename(version.folder / files.SOURCE)
    return version


def create_from_source(
    user: User | None, name: str, source: Source, *, new: bool = False, mapping: ColumnMapping | None = None
) -> DatasetVersion:
    """Queue the next version of the dataset `name` from a source that the worker fetches and checks; with a `mapping`
    it also imports. `new` as for an upload."""
    with new_version(user, name, new=new) as version:
        _map(version, mapping)
        version.status, version.source_kind = DatasetVersion.FETCHING, source.kind
        version.source = source.as_dict()
        version.file_name = shown_name(source.title.replace("/", "∕"))
        version.save()
        make_folder(version.folder)
    return version


def map_again(user: User | None, old: DatasetVersion) -> DatasetVersion:
    """Create a new version of the same source with another mapping: a ready version never changes.

    The check's results are reused, so it waits for its mapping at once (or, like the old one, for a decision about its
    bad rows); the old mapping is proposed there.
    """
    if not (old.folder / files.SOURCE).is_file():
        raise DatasetError("This version was derived from another version. Map that version again, then filter it.")
    if old.status in DatasetVersion.AT_WORK or (old.status == DatasetVersion.INVALID and not old.report.get("rows")):
        raise DatasetError("This version's file wasn't read to the end.")
    report = {name: value for name, value in old.report.items() if name != "mapped"}
    with new_version(user, old.dataset.name, new=False) as version:
        for field in ("file_name", "bytes", "source_sha256", "source_kind", "source", "mapping", "split"):
            setattr(version, field, getattr(old, field))
        version.tokenizer, version.token_limit = old.tokenizer, old.token_limit
        version.parent, version.report = old, report
        version.rows, version.columns = rows_of(report), column_names(report)
        undecided = old.status == DatasetVersion.INVALID
        version.status = DatasetVersion.INVALID if undecided else DatasetVersion.NEEDS_MAPPING
        version.queued_at = None
        version.save()
        take_over(old.folder, version.folder)
    return version


def request_import(
    version: DatasetVersion,
    mapping: ColumnMapping,
    *,
    share: float = SHARE,
    seed: int = SEED,
    tokenizer: str = "",
    limit: int | None = None,
) -> bool:
    """Store the mapping and queue the import. Returns False if the version's state doesn't allow it.

    `share`: validation share of the rows. `tokenizer`: sha256 of the Tokenizer that counts; `limit`: in its tokens.
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
    """Continue without the rows that no mapping can use. Returns False if that is no longer possible."""
    if not version.usable_without_bad_rows:
        return False
    updated = DatasetVersion.objects.filter(pk=version.pk, status=DatasetVersion.INVALID)
    return bool(updated.update(status=DatasetVersion.NEEDS_MAPPING))


def try_again(version: DatasetVersion) -> bool:
    """Retry a fetch, check or derivation that failed because of the server, its disk or the hub."""
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
    """Cancel the current or queued step. Returns BACK if an import returned to its mapping, DELETED if the version was
    deleted with its files, TOO_LATE if the step was finishing. The worker checks twice a second."""
    with transaction.atomic():
        # Locked, so that nobody adds a version meanwhile.
        dataset = Dataset.objects.select_for_update().filter(pk=version.dataset_id).first()
        at_work = DatasetVersion.objects.filter(pk=version.pk, status__in=DatasetVersion.AT_WORK)
        current = at_work.select_for_update().first()  # re-read: someone may have mapped it meanwhile
        if dataset is None or current is None:
            return TOO_LATE
        if current.mapping and current.source_kind != DatasetVersion.DERIVED:
            at_work.update(status=DatasetVersion.NEEDS_MAPPING, queued_at=None, check_started_at=None)
            return BACK
        at_work.delete()
        if not dataset.versions.exists():
            dataset.delete()
        transaction.on_commit(partial(remove_folder, version.folder))
    return DELETED


@contextmanager
def new_version(user: User | None, name: str, *, new: bool) -> Iterator[DatasetVersion]:
    """Create the next version of the dataset `name` (`new`: its first) for the block to fill and save; then queue it if
    a step is due. Raises NameTaken, and leaves nothing if the block fails."""
    with numbered(DatasetVersion(created_by=user, queued_at=timezone.now()), Dataset, name, new=new) as version:
        yield version
        if version.status in DatasetVersion.AT_WORK:
            send_to_worker(version)


@contextmanager
def numbered(
    version: VersionT, items: type[Dataset] | type[Corpus], name: str, *, new: bool = False
) -> Iterator[VersionT]:
    """Make `version` the next one of the item `name`, created if missing, for the block to fill and save.

    If the block fails, nothing is left in the database or on disk. Raises NameTaken if `new` and the item exists.
    """
    try:
        with transaction.atomic():
            item, is_new = items.objects.get_or_create(name=name, defaults={"owner": version.created_by})
            if new and not is_new:
                raise NameTaken(f"There is already a dataset “{name}”. Upload a new version on its page.")
            locked = items.objects.select_for_update().get(pk=item.pk)  # one number at a time
            setattr(version, str(items._meta.model_name), locked)
            version.number = (locked.versions.aggregate(last=Max("number"))["last"] or 0) + 1
            yield version
    except BaseException as error:
        if version.pk is not None:
            shutil.rmtree(version.folder, ignore_errors=True)
        if isinstance(error, (IntegrityError, items.DoesNotExist)):
            raise NameTaken(f"Someone else is changing “{name}” right now. Try again.") from error
        raise


def _map(version: DatasetVersion, mapping: ColumnMapping | None) -> None:
    if mapping:
        version.mapping, version.split = mapping.as_dict(), {"share": SHARE, "seed": SEED}
