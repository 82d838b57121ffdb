"""Archives versions, which are then no longer offered for launches, and deletes versions with their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.folders import remove_folder
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.platform.deletable import set_archived

USED = "Runs were trained on it, and their record needs it: it can't be deleted. Archive it instead."


def archive(version: DatasetVersion) -> bool:
    """Archive a version: the launch form no longer offers it; its runs and derived versions stay unchanged."""
    return set_archived(version, True, subject=version.dataset, act=f"Archived: version {version.number}")


def unarchive(version: DatasetVersion) -> bool:
    return set_archived(version, False, subject=version.dataset, act=f"Offered again: version {version.number}")


def refusal(version: DatasetVersion) -> str:
    """The reason why a version can't be deleted; empty if it can."""
    return USED if version.runs.exists() else ""


def is_the_whole_dataset(version: DatasetVersion) -> bool:
    """True if deleting the version deletes its dataset, which can be restored."""
    return version.status == version.READY and not version.dataset.versions.exclude(pk=version.pk).exists()


def delete_version(version: DatasetVersion) -> bool:
    """Delete a version with its files. True: it was the last one, and its dataset was deleted too. Raises DatasetError
    if a run refers to it."""
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


def _locked(dataset: Dataset) -> Dataset | None:
    """Lock the dataset against new versions until the transaction ends. None: it is gone."""
    return Dataset.every.select_for_update().filter(pk=dataset.pk).first()


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except (ProtectedError, IntegrityError) as error:  # the latter: a run was launched at this moment
        raise DatasetError(USED) from error
