"""Makes corpora: asked for on a page, made by the background worker's child process."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone
from kombu.exceptions import KombuError

from controlplane.catalogue.datasets import reader_process
from controlplane.catalogue.datasets.errors import ChildFailed, DatasetError, NameTaken, NoSpace
from controlplane.catalogue.datasets.folders import LOCK, held, make_folder
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion, DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.worker import FORGOTTEN_AFTER_S, slot, storable
from controlplane.celery import app
from controlplane.platform.accounts.models import User
from workers.contract.run.dataset import COLUMNS

log = logging.getLogger(__name__)

TASK = "datasets.corpus"
SENT_AGAIN_AFTER = timedelta(seconds=20)
GONE = {"kind": "gone", "message": "The dataset version behind this corpus is gone.", "advice": ""}


def columns_of(version: DatasetVersion) -> list[str]:
    """The columns of which documents can be made: the file's, or the canonical ones of a derived version."""
    if version.status in DatasetVersion.AT_WORK:
        return []
    if version.source_kind != DatasetVersion.DERIVED:
        return version.report_columns
    return [name for name in COLUMNS if name not in ("row_id", "split")]


def make(
    user: User | None, name: str, source: DatasetVersion, *, text: Sequence[str], title: str = "", about: str = ""
) -> CorpusVersion:
    """Queue the next version of the corpus `name`, created if missing. Raises DatasetError."""
    known = columns_of(source)
    missing = [column for column in (*text, *([title] if title else [])) if column not in known]
    if missing or not text:
        raise DatasetError(f"{source} has no column {missing[0]}." if missing else "Choose a column for the text.")
    with _made(user, name) as version:
        version.dataset_version, version.source = source, str(source)[:255]
        version.text_columns, version.title_column, version.about = list(text), title, about
        version.save()
        make_folder(version.folder)
    return version


def make_of_lines(user: User | None, name: str, lines: bytes, *, source: str, about: str = "") -> CorpusVersion:
    """The same of JSON Lines with "title" and "text", kept with the corpus until it is made."""
    with _made(user, name) as version:
        version.source, version.text_columns, version.title_column, version.about = source, ["text"], "title", about
        version.save()
        make_folder(version.folder)
        try:
            (version.folder / files.SOURCE).write_bytes(lines)
        except OSError as error:
            raise NoSpace(f"The documents could not be stored: {error.strerror}.") from error
    return version


def work(version: CorpusVersion) -> None:
    """Make it, unless another process is at it. Safe to call twice."""
    if not version.folder.is_dir():
        return
    with slot() as free:
        if not free:
            return  # the sweep sends it again
        with held(version.folder / LOCK) as mine:
            if mine and _wanted(version):
                _work(version)
            if mine and not CorpusVersion.objects.filter(pk=version.pk).exists():
                shutil.rmtree(version.folder, ignore_errors=True)


def sweep() -> None:
    """Send work again that nobody is at, and remove files that no row knows of."""
    for version in CorpusVersion.objects.filter(status=CorpusVersion.MAKING):
        if timezone.now() - version.created_at > SENT_AGAIN_AFTER:
            send_to_worker(version)
    folder = Path(settings.DATA_DIR) / "corpora"
    known = {str(pk) for pk in CorpusVersion.objects.values_list("pk", flat=True)}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in known and time.time() - path.stat().st_mtime > FORGOTTEN_AFTER_S:
            shutil.rmtree(path, ignore_errors=True)


def send_to_worker(version: CorpusVersion) -> None:
    """On commit. Without a broker it waits until the sweep sends it again."""
    pk = version.pk

    def send() -> None:
        if not settings.REDIS_URL:
            return  # the demo and tests call the worker directly
        try:
            app.send_task(TASK, (pk,), retry=False)
        except (KombuError, OSError):
            log.warning("No broker to queue corpus version %s; it is sent again later", pk)

    transaction.on_commit(send)


def _work(version: CorpusVersion) -> None:
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
            report: dict[str, Any] = {"file_error": GONE}
        else:
            report = reader_process.work_answer(version.folder, "corpus", arguments, is_wanted=lambda: _wanted(version))
    except ChildFailed as error:
        report = {"file_error": error.as_dict()}
    except reader_process.Unwanted:
        return
    failed = bool(report.get("file_error"))
    fields = {
        "status": CorpusVersion.INVALID if failed else CorpusVersion.READY,
        "documents": report.get("documents", 0),
        "bytes": report.get("bytes", 0),
        "sha256": report.get("sha256", ""),
        "ready_at": None if failed else timezone.now(),
        "report": storable(report),
    }
    CorpusVersion.objects.filter(pk=version.pk, status=CorpusVersion.MAKING).update(**fields)
    for name in (files.PROGRESS, files.SOURCE):
        (version.folder / name).unlink(missing_ok=True)


def _source(version: CorpusVersion) -> Path | None:
    own, of = version.folder / files.SOURCE, version.dataset_version
    candidates = [own] if of is None else [own, of.source_path, of.rows_path]
    return next((path for path in candidates if path.is_file()), None)


def _wanted(version: CorpusVersion) -> bool:
    return CorpusVersion.objects.filter(pk=version.pk, status=CorpusVersion.MAKING).exists()


@contextmanager
def _made(user: User | None, name: str) -> Iterator[CorpusVersion]:
    """The next version for the block to fill and save, then queued. If the block fails, nothing is left."""
    version = CorpusVersion(created_by=user)
    try:
        with transaction.atomic():
            corpus, _ = Corpus.objects.get_or_create(name=name, defaults={"owner": user})
            version.corpus = Corpus.objects.select_for_update().get(pk=corpus.pk)  # one number at a time
            version.number = (corpus.versions.aggregate(last=Max("number"))["last"] or 0) + 1
            yield version
            send_to_worker(version)
    except BaseException as error:
        if version.pk is not None:
            shutil.rmtree(version.folder, ignore_errors=True)
        if isinstance(error, (IntegrityError, Corpus.DoesNotExist)):
            raise NameTaken(f"Someone else is changing “{name}” right now. Try again.") from error
        raise
