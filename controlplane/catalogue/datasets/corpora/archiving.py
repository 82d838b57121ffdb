"""Archives corpora, which are then no longer offered, and deletes them with their file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.db import transaction

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.folders import remove_folder
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion
from controlplane.platform.deletable import set_archived

USERS: list[Callable[[CorpusVersion], list[str]]] = []
"""Functions that name the users of a version, such as "the run gsm8k"; other apps add theirs when they are ready."""


def users(version: CorpusVersion) -> list[str]:
    return [user for find in USERS for user in find(version)]


def archive(version: CorpusVersion) -> bool:
    """Stop offering a version in forms. Environments and runs that use it keep working."""
    return set_archived(version, True, subject=version.corpus, act=f"Archived: version {version.number}")


def unarchive(version: CorpusVersion) -> bool:
    return set_archived(version, False, subject=version.corpus, act=f"Offered again: version {version.number}")


def delete(version: CorpusVersion) -> None:
    """Delete a version with its file, and its corpus with the last one. Raises DatasetError if something uses it."""
    with transaction.atomic():
        corpus = Corpus.objects.select_for_update().filter(pk=version.corpus_id).first()
        if used := users(version):
            raise DatasetError(f"It is used by {', '.join(used)}: it can't be deleted. Archive it instead.")
        CorpusVersion.objects.filter(pk=version.pk).delete()
        transaction.on_commit(partial(remove_folder, version.folder))
        if corpus is not None and not corpus.versions.exists():
            corpus.delete()
