"""Archiving of versions of datasets and corpora, and their deletion together with their files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.folders import remove_folder
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion, Dataset, DatasetVersion
from controlplane.platform import deletable

USED_BY_RUNS = "Runs were trained on it, and their records need it, so it can't be deleted. Archive it instead."


CORPUS_USERS: list[Callable[[CorpusVersion], list[str]]] = []
"""Functions that name what uses a corpus version, such as "the run gsm8k"; other apps register theirs here."""
DATASET_USERS: list[Callable[[DatasetVersion], bool]] = []
"""Functions that return whether a run mixes a dataset version with its own, registered in the same way."""


def set_archived(version: DatasetVersion | CorpusVersion, archived: bool) -> bool:
    """Archive or unarchive a version, and return whether that changed anything. Forms don't offer an archived version,
    but runs, environments and versions that use it keep working."""
    item = version.dataset if isinstance(version, DatasetVersion) else version.corpus
    action = "Archived" if archived else "Offered again"
    return deletable.set_archived(version, archived, subject=item, act=f"{action}: version {version.number}")


def archived_sentence(title: str, archived: bool) -> str:
    return f"{title} {'is no longer offered. Whatever uses it keeps working' if archived else 'is offered again'}."


def refusal(version: DatasetVersion) -> str:
    """Explain why a version can't be deleted; return "" if it can."""
    return USED_BY_RUNS if version.runs.exists() or any(uses(version) for uses in DATASET_USERS) else ""


def is_the_whole_dataset(version: DatasetVersion) -> bool:
    """Return whether deleting this version deletes its whole dataset, which can be restored."""
    return version.status == version.READY and not version.dataset.versions.exclude(pk=version.pk).exists()


def delete_version(version: DatasetVersion) -> bool:
    """Delete a version with its files, and return whether it was the last one, so that its dataset was deleted too.
    Raises DatasetError if a run refers to the version."""
    with _refused_if_used(), transaction.atomic():
        dataset = _lock(version.dataset)
        DatasetVersion.objects.filter(pk=version.pk).delete()
        transaction.on_commit(partial(remove_folder, version.folder))
        was_last = dataset is not None and not dataset.versions.exists()
        if dataset is not None and was_last:
            dataset.delete()
    return was_last


def delete_dataset(dataset: Dataset) -> None:
    """Delete a dataset with all versions. Raises DatasetError if a run refers to one of them."""
    with _refused_if_used(), transaction.atomic():
        locked_dataset = _lock(dataset)
        if locked_dataset is None:
            return
        folders = [version.folder for version in locked_dataset.versions.defer("report")]
        locked_dataset.delete()
        for folder in folders:
            transaction.on_commit(partial(remove_folder, folder))


def users(version: CorpusVersion) -> list[str]:
    return [user for find_users in CORPUS_USERS for user in find_users(version)]


def delete_corpus_version(version: CorpusVersion) -> None:
    """Delete a version with its file, and its corpus with the last one. Raises DatasetError if something uses it."""
    with transaction.atomic():
        corpus = Corpus.objects.select_for_update().filter(pk=version.corpus_id).first()
        if user_names := users(version):
            raise DatasetError(f"It is used by {', '.join(user_names)}, so it can't be deleted. Archive it instead.")
        CorpusVersion.objects.filter(pk=version.pk).delete()
        transaction.on_commit(partial(remove_folder, version.folder))
        if corpus is not None and not corpus.versions.exists():
            corpus.delete()


def _lock(dataset: Dataset) -> Dataset | None:
    """Lock the dataset against new versions until the transaction ends, and return it, or None if it no longer
    exists."""
    return Dataset.every.select_for_update().filter(pk=dataset.pk).first()


@contextmanager
def _refused_if_used() -> Iterator[None]:
    try:
        yield
    except (ProtectedError, IntegrityError) as error:  # the latter: a run was launched at this moment
        raise DatasetError(USED_BY_RUNS) from error
