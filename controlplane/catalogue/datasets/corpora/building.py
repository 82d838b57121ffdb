"""Creation of corpora and of the sample corpus; a child process of the background worker builds their documents."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from controlplane.catalogue.datasets import actions, reader_process
from controlplane.catalogue.datasets.actions import numbered
from controlplane.catalogue.datasets.errors import ChildFailed, DatasetError, NoSpace
from controlplane.catalogue.datasets.folders import LOCK, make_folder, remove_orphans, try_lock
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion, Dataset, DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.work_queue import CORPUS_TASK, send_on_commit
from controlplane.catalogue.datasets.worker import slot, storable
from controlplane.platform.accounts.models import User
from workers.contract.run.dataset import COLUMNS
from workers.environments import encyclopaedia

RESEND_AFTER = timedelta(seconds=20)
DATASET_DELETED = {"kind": "gone", "message": "This corpus's dataset version no longer exists.", "advice": ""}


def columns_of(version: DatasetVersion) -> list[str]:
    """List the columns that documents can be built from: the file's own or, in derived versions, the canonical ones."""
    if version.status in DatasetVersion.AT_WORK:
        return []
    if version.source_kind != DatasetVersion.DERIVED:
        return version.report_columns
    return [name for name in COLUMNS if name not in ("row_id", "split")]


def create(
    user: User | None, name: str, source: DatasetVersion, *, text: Sequence[str], title: str = "", about: str = ""
) -> CorpusVersion:
    """Queue the next version of the corpus `name`, which is created if it doesn't exist. Raises DatasetError if the
    source lacks a chosen column or no version can be created."""
    available = columns_of(source)
    missing = [column for column in (*text, *filter(None, [title])) if column not in available]
    if missing or not text:
        raise DatasetError(f"{source} has no column {missing[0]}." if missing else "Choose a column for the text.")
    with _new_version(user, name) as version:
        version.dataset_version, version.source = source, str(source)[:255]
        version.text_columns, version.title_column, version.about = list(text), title, about
        version.save()
        make_folder(version.folder)
    return version


def create_from_lines(user: User | None, name: str, lines: bytes, *, source: str, about: str = "") -> CorpusVersion:
    """Queue a version from JSON Lines with "title" and "text", kept in its folder until it is built. Raises NoSpace if
    they can't be stored."""
    with _new_version(user, name) as version:
        version.source, version.text_columns, version.title_column, version.about = source, ["text"], "title", about
        version.save()
        make_folder(version.folder)
        try:
            (version.folder / files.SOURCE).write_bytes(lines)
        except OSError as error:
            raise NoSpace(f"The documents could not be stored: {error.strerror}.") from error
    return version


def create_sample(user: User | None) -> CorpusVersion:
    """Create the sample, unless it exists: a corpus from a made-up encyclopaedia, and a dataset of questions about it.

    Raises DatasetError if either can't be stored.
    """
    if not Dataset.objects.filter(name=encyclopaedia.QUESTIONS).exists():
        questions = BytesIO(encyclopaedia.lines(encyclopaedia.questions()))
        mapping = ColumnMapping(prompt="question", answer="answer")
        actions.create_from_upload(
            user, encyclopaedia.QUESTIONS, questions, "questions.jsonl", must_be_new=True, mapping=mapping
        )
    unarchived = CorpusVersion.objects.filter(corpus__name=encyclopaedia.NAME, archived_at=None)
    if (usable_version := unarchived.exclude(status=CorpusVersion.INVALID).first()) is not None:
        return usable_version
    documents = encyclopaedia.lines(encyclopaedia.documents())
    return create_from_lines(
        user, encyclopaedia.NAME, documents, source="the sample of this product", about=encyclopaedia.TOPIC
    )


def build(version: CorpusVersion) -> None:
    """Build the corpus, unless another process is building it or no slot is free."""
    if not version.folder.is_dir():
        return
    with slot() as has_slot:
        if not has_slot:
            return  # `reconcile` sends it again
        with try_lock(version.folder / LOCK) as has_lock:
            if has_lock and _is_wanted(version):
                _build(version)
            if has_lock and not CorpusVersion.objects.filter(pk=version.pk).exists():
                shutil.rmtree(version.folder, ignore_errors=True)


def reconcile() -> None:
    """Resend the versions that haven't been built, and remove files of versions that are no longer in the database."""
    for version in CorpusVersion.objects.filter(status=CorpusVersion.MAKING):
        if timezone.now() - version.created_at > RESEND_AFTER:
            send_on_commit(CORPUS_TASK, version.pk)
    folder = Path(settings.DATA_DIR) / "corpora"
    keys = {str(pk) for pk in CorpusVersion.objects.values_list("pk", flat=True)}
    remove_orphans(folder.iterdir() if folder.is_dir() else (), keys)


def _build(version: CorpusVersion) -> None:
    source = _source(version)
    arguments = {
        "source": str(source),
        "text": version.text_columns,
        "title": version.title_column,
        "name": version.corpus.name,
        "about": version.about,
    }
    try:
        if source is None:
            report: dict[str, Any] = {"file_error": DATASET_DELETED}
        else:
            report = reader_process.run_for_json(
                version.folder, "corpus", arguments, is_wanted=lambda: _is_wanted(version)
            )
    except ChildFailed as error:
        report = {"file_error": error.as_dict()}
    except reader_process.ResultUnwanted:
        return
    has_failed = bool(report.get("file_error"))
    fields = {
        "status": CorpusVersion.INVALID if has_failed else CorpusVersion.READY,
        "documents": report.get("documents", 0),
        "bytes": report.get("bytes", 0),
        "sha256": report.get("sha256", ""),
        "ready_at": None if has_failed else timezone.now(),
        "report": storable(report),
    }
    CorpusVersion.objects.filter(pk=version.pk, status=CorpusVersion.MAKING).update(**fields)
    for name in (files.PROGRESS, files.SOURCE):
        (version.folder / name).unlink(missing_ok=True)


def _source(version: CorpusVersion) -> Path | None:
    own_path, parent = version.folder / files.SOURCE, version.dataset_version
    candidates = [own_path] if parent is None else [own_path, parent.source_path, parent.rows_path]
    return next((path for path in candidates if path.is_file()), None)


def _is_wanted(version: CorpusVersion) -> bool:
    return CorpusVersion.objects.filter(pk=version.pk, status=CorpusVersion.MAKING).exists()


@contextmanager
def _new_version(user: User | None, name: str) -> Iterator[CorpusVersion]:
    """Create the next version for the block to fill and save, then queue it. If the block fails, nothing is stored."""
    with numbered(CorpusVersion(created_by=user), Corpus, name) as version:
        yield version
        send_on_commit(CORPUS_TASK, version.pk)
