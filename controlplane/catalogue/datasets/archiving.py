"""Archiving of versions of datasets and corpora, and deletion with their files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.folders import remove_folder
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion, Dataset, DatasetVersion
from controlplane.platform import deletable

USED = "Runs were trained on it, and their record needs it: it can't be deleted. Archive it instead."


CORPUS_USERS: list[Callable[[CorpusVersion], list[str]]] = []
"""Functions that name the users of a corpus version, such as "the run gsm8k"; other apps register theirs."""


def set_archived(version: DatasetVersion | CorpusVersion, archived: bool) -> bool:
    """Archive or unarchive a version: forms no longer offer it; runs, environments and versions that use it keep
    working. Returns False if nothing changed."""
    item = version.dataset if isinstance(version, DatasetVersion) else version.corpus
    act = "Archived" if archived else "Offered again"
    return deletable.set_archived(version, archived, subject=item, act=f"{act}: version {version.number}")


def archived_sentence(title: str, archived: bool) -> str:
    return f"{title} {'is no longer offered. Whatever uses it keeps working' if archived else 'is offered again'}."


def refusal(version: DatasetVersion) -> str:
    """Explain why a version can't be deleted; empty if it can."""
    return USED if version.runs.exists() else ""


def is_the_whole_dataset(version: DatasetVersion) -> bool:
    """Test whether deleting the version deletes its dataset, which can be restored."""
    return version.status == version.READY and not version.dataset.versions.exclude(pk=version.pk).exists()


def delete_version(version: DatasetVersion) -> bool:
    """Delete a version with its files. Returns True if it was the last one and its dataset was deleted too. Raises
    DatasetError if a run refers to it."""
    with _in_words(), transaction.atomic():
        dataset = _locked(version.dataset)
        DatasetVersion.objects.filter(pk=version.pk).delete()
        transaction.on_commit(partial(remove_folder, version.folder))
        last = dataset is not None and not dataset.versions.exists()
        if dataset is not None and last:
            dataset.delete()
    return last


def delete_dataset(dataset: Dataset) -> None:
    """Delete a dataset with all versions. Raises DatasetError if a run refers to one of them."""
    with _in_words(), transaction.atomic():
        locked = _locked(dataset)
        if locked is None:
            return
        folders = [version.folder for version in locked.versions.defer("report")]
        locked.delete()
        for folder in folders:
            transaction.on_commit(partial(remove_folder, folder))


def users(version: CorpusVersion) -> list[str]:
    return [user for find in CORPUS_USERS for user in find(version)]


def delete_corpus_version(version: CorpusVersion) -> None:
    """Delete a version with its file, and its corpus with the last one. Raises DatasetError if something uses it."""
    with transaction.atomic():
        corpus = Corpus.objects.select_for_update().filter(pk=version.corpus_id).first()
        if names := users(version):
            raise DatasetError(f"It is used by {', '.join(names)}: it can't be deleted. Archive it instead.")
        CorpusVersion.objects.filter(pk=version.pk).delete()
        transaction.on_commit(partial(remove_folder, version.folder))
        if corpus is not None and not corpus.versions.exists():
            corpus.delete()


def _locked(dataset: Dataset) -> Dataset | None:
    """Lock the dataset against new versions until the transaction ends. None: it is gone."""
    return Dataset.every.select_for_update().filter(pk=dataset.pk).first()


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except (ProtectedError, IntegrityError) as error:  # the latter: a run was launched at this moment
        raise DatasetError(USED) from error
