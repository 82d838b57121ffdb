"""Past a limit of completions a run forgets its oldest groups: their prompts stay counted, the groups themselves go.

Thinning takes texts, which are most of it; what is left of a group, its row and the figures of each completion, would
still grow for as long as a run trains.
"""

from __future__ import annotations

import logging
import math
import time

from django.db import transaction
from django.db.models import F, Max, Min

from controlplane.http import outage
from runs.completions import progress
from runs.completions.progress import Visit
from runs.models import SampleRow, SampleStore

log = logging.getLogger(__name__)

LIMIT = 1_000_000
"""Completions of a run whose groups are kept: about 100 MB of figures."""
ROOM = 0.95
"""So much of the limit is left, so that the next round finds nothing to do for a while."""
BATCH = 200
"""Groups in one transaction: while it lasts, SQLite lets nobody else write."""
PAUSE_S = 0.01
BUDGET_S = 0.5
"""Of one round of the tick; the next goes on."""


def forget_all(seconds: float = BUDGET_S) -> None:
    until = time.monotonic() + seconds
    due = SampleStore.objects.filter(completions__gt=LIMIT).order_by("-completions", "pk")
    for run_id in list(due.values_list("run_id", flat=True)):
        if time.monotonic() >= until:
            return
        try:
            forget(run_id, LIMIT, until=until)
        except Exception as error:  # a loop's border: one run's rows must not keep the others' from going
            if outage.is_away(error):
                raise
            log.exception("the oldest completions of run %s can't be forgotten", run_id)


def forget(run_id: str, limit: int = LIMIT, *, until: float = math.inf) -> None:
    """Bring a run's completions below the limit, oldest steps first, as far as it comes `until` then. The newest step
    stays, however large it is. Of two at once neither does harm."""
    while _forget_some(run_id, int(limit * ROOM)) and time.monotonic() < until:
        time.sleep(PAUSE_S)


def _forget_some(run_id: str, most: int) -> bool:
    """One batch; False: nothing is left to do."""
    with transaction.atomic():
        store = progress.locked_store(run_id)
        stored = SampleRow.objects.filter(run_id=run_id)
        newest = stored.aggregate(step=Max("step"))["step"]
        beyond = store.completions - most
        if beyond <= 0 or newest is None:
            return False
        older = stored.filter(step__lt=newest).order_by("step", "pk").defer("data")
        going: list[SampleRow] = []
        for row in older[:BATCH]:
            if beyond <= 0:
                break
            going.append(row)
            beyond -= row.completions
        if not going:
            return False
        progress.forget(run_id, [visit for row in going if (visit := _visit(row))])
        stored.filter(pk__in=[row.pk for row in going]).delete()
        SampleStore.objects.filter(pk=run_id).update(
            completions=F("completions") - sum(row.completions for row in going),
            size=F("size") - sum(row.size for row in going),
            groups_from=stored.aggregate(step=Min("step"))["step"],
        )
        return True


def _visit(row: SampleRow) -> Visit | None:
    if row.row is None or row.superseded:
        return None
    return Visit(row.row, row.step, row.completions, row.solved, row.reward_mean, row.reward_high)
