"""Text retention: beyond a limit, texts of older completions are deleted. Some prompts keep theirs; all numbers stay.

A hash of the row number selects those prompts, so they are the same at every visit, and a smaller share is a subset of
a larger one.
"""

import logging
import math
import time
from zlib import crc32

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from controlplane.platform.http import outage
from runs.engine.records import SampleRow, SampleStore
from runs.insight.completions.groups import without_texts
from runs.insight.completions.progress import locked_store

log = logging.getLogger(__name__)

LIMIT = 256 * 2**20
"""Maximum number of bytes of a run's completions stored with texts."""
NEWEST_SHARE = 1 / 2
"""Share of the limit reserved for the newest steps, which keep all texts."""
OLDER_SHARE = 1 / 4
"""Share of the limit for the selected prompts of all earlier steps. The remainder is headroom until the next round."""
BATCH = 25
"""Groups per transaction, during which SQLite blocks other writers; a group may take a megabyte."""
PAUSE_S = 0.01
MAX_GROUPS_PER_ROUND = 1000
"""Maximum number of groups of one run stripped per round; the next round continues."""
BUDGET_S = 1.0
MAX_ONE_IN = 2**20
"""Largest N for which one prompt in N keeps its texts, which is practically none."""


def thin_all(seconds: float = BUDGET_S) -> None:
    until = time.monotonic() + seconds
    due_stores = SampleStore.objects.filter(size__gt=LIMIT).order_by("-size", "pk")
    for run_id in list(due_stores.values_list("run_id", flat=True)):
        if time.monotonic() >= until:
            return
        try:
            thin(run_id, until=until)
        except Exception as error:  # loop boundary: unreadable groups must not block the others
            if outage.is_away(error):
                raise
            log.exception("the completions of run %s can't be thinned", run_id)


def keeps_text(row: int | None, one_in: int) -> bool:
    return row is not None and crc32(str(row).encode()) % one_in == 0


def thin(run_id: str, limit: int = LIMIT, *, until: float = math.inf) -> None:
    """Delete the texts beyond a run's limit, oldest first, until none is left or `time.monotonic()` reaches `until`.
    Safe to run concurrently."""
    with_texts = SampleRow.objects.filter(run_id=run_id, size__gt=0)
    edge = _first_whole_step(with_texts, int(limit * NEWEST_SHARE))
    one_in = _thinning(run_id, with_texts.filter(step__lt=edge), int(limit * OLDER_SHARE))
    SampleStore.objects.filter(pk=run_id).update(one_in=one_in)
    older = with_texts.filter(Q(step__lt=edge) | Q(superseded=True)).order_by("step", "pk")
    samples = [(pk, step) for pk, step, row in older.values_list("pk", "step", "row") if not keeps_text(row, one_in)]
    offset = 0
    while offset < min(len(samples), MAX_GROUPS_PER_ROUND) and (not offset or time.monotonic() < until):
        _strip(run_id, [pk for pk, _ in samples[offset : offset + BATCH]])
        offset += BATCH
        time.sleep(PAUSE_S)
    reached_step = edge if len(samples) <= offset else min(edge, samples[offset][1])
    with transaction.atomic():
        store = locked_store(run_id)
        store.whole_from = max(store.whole_from, reached_step)
        store.size = with_texts.aggregate(size=Sum("size"))["size"] or 0
        store.save(update_fields=["whole_from", "size"])


def _first_whole_step(with_texts: QuerySet[SampleRow], room: int) -> int:
    """Return the oldest step that keeps all texts. The newest step always keeps them."""
    edge = 0
    steps = with_texts.filter(superseded=False).values("step").annotate(bytes=Sum("size")).order_by("-step")
    for index, step in enumerate(steps):
        room -= step["bytes"]
        if room < 0 and index:
            break
        edge = step["step"]
    return edge


def _thinning(run_id: str, older: QuerySet[SampleRow], room: int) -> int:
    """Return N, where one prompt in N keeps the texts of its earlier visits. N never decreases."""
    prompts = older.filter(superseded=False, row__isnull=False).order_by("row")
    sizes = list(prompts.values_list("row").annotate(bytes=Sum("size")))
    one_in: int = SampleStore.objects.values_list("one_in", flat=True).get(pk=run_id)
    while one_in < MAX_ONE_IN and sum(size for row, size in sizes if keeps_text(row, one_in)) > room:
        one_in *= 2
    return one_in


def _strip(run_id: str, pks: list[int]) -> None:
    with transaction.atomic():
        locked_store(run_id)
        rows = list(SampleRow.objects.filter(pk__in=pks, size__gt=0))
        for row in rows:
            row.data, row.size = without_texts(row.data), 0
        SampleRow.objects.bulk_update(rows, ["data", "size"])
