"""Reading a run's history: a bounded number of rows, whatever the length of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from runs.completions.groups import completions
from runs.health import history as past
from runs.health import texts
from runs.health.config import config_of
from runs.health.history import RECENT, History, MetricHistory, Row, Text
from runs.metrics.series import Points
from runs.models import Attempt, MetricChunk, MetricRow, Run, SampleRow
from runs.spec import spec_of
from workers.contract import EventKind

SYSTEM_ROWS = 400
"""Rows of machine metrics to read: several minutes."""
GROUPS = 4
COMPLETIONS = 24
"""Completions read per step, from at most as many prompt groups."""
TEXTS = 40
"""Steps whose completions are remembered as counts."""
CHUNK_SPAN = 4000
"""A span of seqs: with slow steps most rows are the machine's, so older steps are read from chunks."""
CHUNKED = 60


def read(run: Run, attempt: Attempt, memory: Mapping[str, Any]) -> History:
    """Read the history. Raises ContractError if the spec can no longer be read."""
    history = History(config_of(spec_of(run), attempt.gpus), {}, step=run.step)
    history.known = frozenset(run.last_metrics)
    past.from_memory(history, memory)
    rows, oldest = _train(run)
    history.columns = past.columns_of(rows)
    if len(rows) < CHUNKED < run.step and oldest:
        _lengthen(history, run, oldest)
    if history.config.gpus:
        history.columns |= past.columns_of(_system(run))
    history.training_since = _since(run, attempt)
    if attempt.number > int(memory.get("attempt") or attempt.number):
        past.forget_after(history, attempt.resume_step)
    _read_texts(history, run)
    past.remember(history, whole=_is_whole(history))
    return history


def _train(run: Run) -> tuple[list[Row], int]:
    """The newest steps, oldest first, and the seq of the first one."""
    rows = MetricRow.objects.filter(run=run, kind=EventKind.TRAIN, superseded=False).order_by("-seq")
    newest = list(rows.values_list("seq", "step", "t", "values")[:RECENT])[::-1]
    return [(step, t, values) for _, step, t, values in newest], newest[0][0] if newest else 0


def _system(run: Run) -> list[Row]:
    rows = MetricRow.objects.filter(run=run, kind=EventKind.SYSTEM).order_by("-seq")
    newest: list[Row] = [(None, t, values) for t, values in rows.values_list("t", "values")[:SYSTEM_ROWS]]
    return newest[::-1]


def _lengthen(history: History, run: Run, oldest: int) -> None:
    """Prepend the newest chunks' values of earlier steps to the columns."""
    chunks = MetricChunk.objects.filter(run=run, metric__in=list(history.columns), first_seq__lt=oldest)
    near = chunks.filter(last_seq__gte=oldest - CHUNK_SPAN).order_by("metric", "first_seq")
    for name, count, data in near.values_list("metric", "points", "data"):
        points = Points.unpack(data, count)
        earlier = points.pick(points.seq < oldest)
        if not len(earlier):
            continue
        column = history.columns[name]
        history.columns[name] = MetricHistory(
            np.concatenate((earlier.step.astype(np.int64), column.step))[-RECENT:],
            np.concatenate((earlier.t, column.t))[-RECENT:],
            np.concatenate((earlier.value, column.value))[-RECENT:],
        )


def _since(run: Run, attempt: Attempt) -> float:
    """When this attempt ended its first step, by the host's clock; 0 if it hasn't."""
    rows = MetricRow.objects.filter(run=run, attempt=attempt, kind=EventKind.TRAIN).order_by("seq")
    return rows.values_list("t", flat=True).first() or 0.0


def _is_whole(history: History) -> bool:
    column = history.get("reward") or history.get("loss")
    return column is not None and int(column.step[0]) <= 2


def _read_texts(history: History, run: Run) -> None:
    last = history.texts[-1].step if history.texts else -1
    rows = SampleRow.objects.filter(run=run, mode="train", superseded=False, step__gt=last).order_by("-step", "line")
    newest: dict[int, list[str]] = {}
    for step, data in rows.values_list("step", "data")[:GROUPS]:
        completion_texts = [completion.text for completion in completions(data)]
        newest.setdefault(step, []).extend(text for text in completion_texts if text is not None)
    for step, step_texts in sorted(newest.items()):
        history.texts.append(Text(step, *texts.count(step_texts[:COMPLETIONS])))
    history.texts = history.texts[-TEXTS:]
