"""Purges: first the files on hosts and in the artifact store are deleted, then the rows. Each round continues where the
last one ended, so an unreachable host delays only the runs it has files of, and a crash loses nothing."""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Model
from django.db.models.query import QuerySet

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.models import Dataset
from controlplane.platform.http import outage
from runs.engine import deletions
from runs.engine.artifacts.models import StoredCopy
from runs.engine.models import Lease, Run
from runs.engine.records import LogChunk, MetricChunk, MetricRow, PromptProgress, SampleRow
from runs.engine.spec import runs_on
from runs.engine.step_spans import StepSpans
from runs.engine.trash.kinds import KINDS

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 500
"""Upper bound of the rows deleted in one transaction, for which writers of lines have to wait."""


def purge(now: datetime) -> int:
    """Delete the rows that are due for purging, with their files, in one round. Return the number of rows deleted."""
    count = 0
    for kind in KINDS.values():
        for row in kind.model.every.filter(purge_at__lte=now).order_by("purge_at", "pk"):
            try:
                count += _purge(row, now)
            except Exception as error:  # loop boundary: one row must not keep the others
                if outage.is_away(error):
                    raise
                log.exception("%s %s could not be deleted", kind.label, row.pk)
    return count


def waits_for(row: Any, now: datetime) -> str:
    """Describe what the purge of a row is waiting for, in one sentence per reason; return "" if nothing."""
    if isinstance(row, Dataset):
        is_used = runs_on(row).exists()
        return "Runs used it, so it is deleted after the last of them." if is_used else ""
    if not isinstance(row, Run):
        return ""
    if Run.every.filter(source=row).exists():
        return "Its jobs are deleted first."
    reasons = [deletions.folder_obstacle(attempt, now) for attempt in row.attempts.select_related("host")]
    if (copy := StoredCopy.objects.filter(attempt__run=row).order_by("pk").first()) is not None:
        reasons.append(f"The artifact store still has copies of it. {copy.problem}".strip())
    if Lease.objects.filter(attempt__run=row).exclude(state=Lease.RELEASED).exists():
        reasons.append("Resources are in quarantine after this run. Release them on the Hardware page.")
    return " ".join(dict.fromkeys(filter(None, reasons)))


def _purge(row: Any, now: datetime) -> bool:
    """Delete a row with its files. Return False if something else must be deleted first."""
    if isinstance(row, Run):
        for attempt in row.attempts.select_related("host"):
            deletions.request_folder_deletion(attempt, now)
        copies = StoredCopy.objects.filter(attempt__run=row, wanted=True)
        copies.update(wanted=False, next_at=now, tries=0)  # upkeep removes them
    if waits_for(row, now):
        return False
    if isinstance(row, Dataset):
        archiving.delete_dataset(row)
        return True
    if isinstance(row, Run):
        for rows in _large_tables(row):
            while pks := list(rows.order_by().values_list("pk", flat=True)[:ROWS_AT_ONCE]):
                rows.filter(pk__in=pks).delete()
        Lease.objects.filter(attempt__run=row).delete()
    row.delete()
    return True


def _large_tables(run: Run) -> Iterator[QuerySet[Any]]:
    of_run: tuple[type[Model], ...] = (SampleRow, MetricRow, MetricChunk, PromptProgress, StepSpans)
    yield from (model._default_manager.filter(run=run) for model in of_run)
    yield LogChunk.objects.filter(attempt__run=run)
