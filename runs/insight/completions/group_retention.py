"""Retention of prompt groups: beyond a number of completions the oldest groups are deleted, but their counts are kept.
Text retention removes most of the data, but the groups' rows and the numbers of their completions would still grow as
long as the run trains."""

import logging
import math
import time

from django.db import transaction
from django.db.models import F, Max, Min

from controlplane.platform.http import outage
from runs.engine.records import SampleRow, SampleStore
from runs.insight.completions import progress
from runs.insight.completions.progress import Visit

log = logging.getLogger(__name__)

LIMIT = 1_000_000
"""Maximum number of completions per run whose groups are kept: about 100 MB of numbers."""
TARGET_SHARE = 0.95
"""Share of the limit down to which groups are deleted, so that the next rounds have nothing to do."""
BATCH = 200
"""Groups deleted per transaction, during which SQLite blocks other writers."""
PAUSE_S = 0.01
BUDGET_S = 0.5


def forget_all(seconds: float = BUDGET_S) -> None:
    until = time.monotonic() + seconds
    due_stores = SampleStore.objects.filter(completions__gt=LIMIT).order_by("-completions", "pk")
    for run_id in list(due_stores.values_list("run_id", flat=True)):
        if time.monotonic() >= until:
            return
        try:
            forget(run_id, LIMIT, until=until)
        except Exception as error:  # loop boundary: one run's rows must not block the others
            if outage.is_away(error):
                raise
            log.exception("the oldest completions of run %s can't be deleted", run_id)


def forget(run_id: str, limit: int = LIMIT, *, until: float = math.inf) -> None:
    """Delete a run's oldest groups down to TARGET_SHARE of the limit, or until `time.monotonic()` reaches `until`.

    The newest step is kept, however large it is. Safe to run concurrently.
    """
    while _forget_some(run_id, int(limit * TARGET_SHARE)) and time.monotonic() < until:
        time.sleep(PAUSE_S)


def _forget_some(run_id: str, limit: int) -> bool:
    """Delete one batch of groups. Return False if nothing is left to delete."""
    with transaction.atomic():
        store = progress.locked_store(run_id)
        stored_rows = SampleRow.objects.filter(run_id=run_id)
        newest_step = stored_rows.aggregate(step=Max("step"))["step"]
        excess = store.completions - limit
        if excess <= 0 or newest_step is None:
            return False
        older_rows = stored_rows.filter(step__lt=newest_step).order_by("step", "pk").defer("data")
        expired_rows: list[SampleRow] = []
        for row in older_rows[:BATCH]:
            if excess <= 0:
                break
            expired_rows.append(row)
            excess -= row.completions
        if not expired_rows:
            return False
        rows_to_count = (row for row in expired_rows if row.row is not None and not row.superseded)
        progress.forget(run_id, map(Visit.of, rows_to_count))
        stored_rows.filter(pk__in=[row.pk for row in expired_rows]).delete()
        SampleStore.objects.filter(pk=run_id).update(
            completions=F("completions") - sum(row.completions for row in expired_rows),
            size=F("size") - sum(row.size for row in expired_rows),
            groups_from=stored_rows.aggregate(step=Min("step"))["step"],
        )
        return True
