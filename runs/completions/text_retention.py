"""Past a limit, texts of older completions go: whole prompts are kept, and every completion's figures.

Which prompts is decided by a hash of the row's number, so the same ones are kept at every visit, and of two shares the
smaller lies within the larger.
"""

from __future__ import annotations

import logging
import math
import time
from zlib import crc32

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from controlplane.http import outage
from runs.completions.groups import thinned
from runs.completions.progress import locked_store
from runs.models import SampleRow, SampleStore

log = logging.getLogger(__name__)

LIMIT = 256 * 2**20
"""Bytes of a run's completions that are kept with their texts."""
NEWEST = 1 / 2
"""Of the limit: for the newest steps, which are whole."""
OLDER = 1 / 4
"""Of the limit: for the prompts that are kept of all earlier steps. The rest is room until the next time."""
BATCH = 25
"""In one transaction: while it lasts, SQLite lets nobody else write, and a group may be a megabyte."""
PAUSE_S = 0.01
AT_ONCE = 1000
"""Groups that one run loses in one round of the tick; the next round goes on."""
BUDGET_S = 1.0
"""Of one round of the tick, however many runs are past the limit: the furthest past it comes first."""
FEWEST = 2**20
"""One prompt in so many: of any real dataset none."""


def thin_all(seconds: float = BUDGET_S) -> None:
    until = time.monotonic() + seconds
    due = SampleStore.objects.filter(size__gt=LIMIT).order_by("-size", "pk")
    for run_id in list(due.values_list("run_id", flat=True)):
        if time.monotonic() >= until:
            return
        try:
            thin(run_id, until=until)
        except Exception as error:  # a loop's border: groups that can't be read must not keep the others whole
            if outage.is_away(error):
                raise
            log.exception("the completions of run %s can't be thinned", run_id)


def kept(row: int | None, one_in: int) -> bool:
    return row is not None and crc32(str(row).encode()) % one_in == 0


def thin(run_id: str, limit: int = LIMIT, *, until: float = math.inf) -> None:
    """Bring a run's texts below the limit, oldest steps first, as far as it comes `until` then. Of two at once neither
    does harm."""
    whole = SampleRow.objects.filter(run_id=run_id, size__gt=0)
    edge = _edge(whole, int(limit * NEWEST))
    one_in = _share(run_id, whole.filter(step__lt=edge), int(limit * OLDER))
    SampleStore.objects.filter(pk=run_id).update(one_in=one_in)
    older = whole.filter(Q(step__lt=edge) | Q(superseded=True)).order_by("step", "pk")
    going = [(pk, step) for pk, step, row in older.values_list("pk", "step", "row") if not kept(row, one_in)]
    done = 0
    while done < min(len(going), AT_ONCE) and (not done or time.monotonic() < until):
        _strip(run_id, [pk for pk, _ in going[done : done + BATCH]])
        done += BATCH
        time.sleep(PAUSE_S)
    reached = edge if len(going) <= done else min(edge, going[done][1])
    with transaction.atomic():
        store = locked_store(run_id)
        store.whole_from = max(store.whole_from, reached)
        store.size = whole.aggregate(size=Sum("size"))["size"] or 0
        store.save(update_fields=["whole_from", "size"])


def _edge(whole: QuerySet[SampleRow], room: int) -> int:
    """The oldest step that is kept whole: the newest one always is."""
    edge = 0
    steps = whole.filter(superseded=False).values("step").annotate(bytes=Sum("size")).order_by("-step")
    for index, each in enumerate(steps):
        room -= each["bytes"]
        if room < 0 and index:
            break
        edge = each["step"]
    return edge


def _share(run_id: str, older: QuerySet[SampleRow], room: int) -> int:
    """One prompt in how many can keep the texts of its earlier visits; never more than before."""
    prompts = older.filter(superseded=False, row__isnull=False).order_by("row")
    sizes = list(prompts.values_list("row").annotate(bytes=Sum("size")))
    one_in: int = SampleStore.objects.values_list("one_in", flat=True).get(pk=run_id)
    while one_in < FEWEST and sum(size for row, size in sizes if kept(row, one_in)) > room:
        one_in *= 2
    return one_in


def _strip(run_id: str, pks: list[int]) -> None:
    with transaction.atomic():
        locked_store(run_id)
        rows = list(SampleRow.objects.filter(pk__in=pks, size__gt=0))
        for row in rows:
            row.data, row.size = thinned(row.data), 0
        SampleRow.objects.bulk_update(rows, ["data", "size"])
