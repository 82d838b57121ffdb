"""Archiving and deleting corpora: archived ones aren't offered, deleted ones lose their file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.db import transaction
from django.utils import timezone

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.folders import remove_folder
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion
from controlplane.platform.activity.recording import recorded

USERS: list[Callable[[CorpusVersion], list[str]]] = []
"""What names the users of a version, in words such as "the run gsm8k"; other apps add theirs when they are ready."""


def users(version: CorpusVersion) -> list[str]:
    return [user for find in USERS for user in find(version)]


def archive(version: CorpusVersion) -> bool:
    """Forms no longer offer it; what uses it goes on."""
    live = CorpusVersion.objects.filter(pk=version.pk, archived_at=None)
    return recorded(live.update(archived_at=timezone.now()), version.corpus, f"Archived: version {version.number}")


def unarchive(version: CorpusVersion) -> bool:
    away = CorpusVersion.objects.filter(pk=version.pk, archived_at__isnull=False)
    return recorded(away.update(archived_at=None), version.corpus, f"Offered again: version {version.number}")


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
