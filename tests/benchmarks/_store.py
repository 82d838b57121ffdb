"""How many of the lines that runs have sent are in the store: raw, folded or as events, each counted by (run, seq)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COUNT = """
import numpy as np
from runs.engine.records import MetricChunk, MetricRow, RunEvent
from runs.insight.metrics.series import Points
result = [0, 0, 0]
for run, last in sent.items():
    raw = np.fromiter(MetricRow.objects.filter(run_id=run).values_list("seq", flat=True).iterator(10_000), dtype="i8")
    events = RunEvent.objects.filter(run_id=run, seq__isnull=False).values_list("seq", flat=True)
    found = [np.unique(raw), np.array(list(events), dtype="i8")]
    twice = len(raw) - len(found[0])
    metric, known = None, np.zeros(last + 1, dtype=bool)
    folded = np.zeros(last + 1, dtype=bool)
    for chunk in MetricChunk.objects.filter(run_id=run).order_by("metric", "first_seq").iterator(500):
        if chunk.metric != metric:
            metric, known = chunk.metric, np.zeros(last + 1, dtype=bool)
        seqs = Points.unpack(chunk.data, chunk.points).seq
        inside = seqs[(seqs >= 1) & (seqs <= last)]
        found.append(seqs[seqs > last])
        twice += int(known[inside].sum()) + len(inside) - len(np.unique(inside))
        known[inside] = folded[inside] = True
    found.append(np.flatnonzero(folded))
    stored = np.unique(np.concatenate(found))
    there = int(((stored >= 1) & (stored <= last)).sum())
    result = [result[0] + there, result[1] + len(stored) - there, result[2] + twice]
"""


@dataclass(frozen=True)
class Kept:
    sent: int
    stored: int
    never_sent: int
    """Seqs in the store that nobody sent."""
    twice: int
    """A point of one metric, or a raw row, that is there more than once."""

    @property
    def lost(self) -> int:
        return self.sent - self.stored


def kept(django: Callable[..., Any], sent: Mapping[str, int]) -> Kept:
    """`django`: a stack's. `sent`: of each run the last seq; its lines are numbered from 1 without a gap."""
    stored, never_sent, twice = django(COUNT, sent=dict(sent))
    return Kept(sum(sent.values()), stored, never_sent, twice)
