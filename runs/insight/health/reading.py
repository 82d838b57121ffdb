"""Reading a run's history from a number of rows that doesn't depend on the run's length."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from django.db.models import QuerySet, Sum

from runs.engine.models import Attempt, Run
from runs.engine.records import MetricChunk, MetricRow, SampleRow
from runs.engine.spec import spec_of
from runs.insight.completions.groups import completions
from runs.insight.health import evidence, memories, texts
from runs.insight.health import history as past
from runs.insight.health.config import config_of
from runs.insight.health.history import RECENT, START, History, MetricHistory, Row, Text
from runs.insight.metrics.series import Points
from workers.contract.wire.names import EventKind

SYSTEM_S = 600.0
SYSTEM_STEPS = 8
SYSTEM_ROWS = 2000
"""Maximum number of rows of machine metrics, which are read for SYSTEM_S or SYSTEM_STEPS, whichever is longer."""
NEW_STEPS = 1000
GROUPS = 4
COMPLETIONS = 24
"""Maximum number of completions read per step, from at most GROUPS prompt groups."""


def read(run: Run, attempt: Attempt, memory: Mapping[str, Any]) -> History:
    """Return the run's history and update its memory. Raises ContractError if the spec can no longer be read."""
    ranks = tuple((attempt.placement or {}).get("gpus") or ())
    history = History(config_of(spec_of(run), attempt.gpus, ranks), {}, step=run.step, capacity=_capacity(attempt))
    history.reported = frozenset(run.last_metrics)
    memories.from_memory(history, memory)
    rows, oldest = _train(run, history.config.updates)
    history.columns = past.columns_of(rows)
    if oldest:
        _lengthen(history, run, oldest)
    history.columns |= past.columns_of(_machine(run, EventKind.SYSTEM, _steps_ago(history)))
    if "vllm/kv_cache_percent" in history.reported:
        history.columns |= past.columns_of(_machine(run, EventKind.VLLM, _steps_ago(history)))
    history.training_since = _since(run, attempt)
    kept_columns = memory.get("columns") or {}
    if attempt.number > int(memory.get("attempt") or attempt.number):
        memories.forget_after(history, attempt.resume_step)
        kept_columns = {
            name: [point for point in points if point[0] <= attempt.resume_step]
            for name, points in kept_columns.items()
        }
    evidence.from_memory(history, kept_columns)
    _read_texts(history, run)
    past.remember(history)
    return history


def _train(run: Run, updates: int) -> tuple[list[Row], int]:
    """Return the newest lines and the seq of the oldest. If most lines are updates, earlier generations are added."""
    rows = MetricRow.objects.filter(run=run, kind=EventKind.TRAIN, superseded=False).order_by("-seq")
    newest = _lines(rows[:RECENT])
    recent = [row for _, row in newest]
    oldest = newest[0][0] if newest else 0
    missing_count = RECENT - past.generations(recent)
    if updates <= 1 or len(recent) < RECENT or missing_count <= 0:
        return recent, oldest
    earlier_lines = _lines(rows.filter(seq__lt=oldest, values__has_key=past.GENERATED)[:missing_count])
    return past.with_generations(recent, (row for _, row in earlier_lines)), earlier_lines[0][
        0
    ] if earlier_lines else oldest


def _lines(rows: QuerySet[MetricRow]) -> list[tuple[int, Row]]:
    return [(seq, (step, t, values)) for seq, step, t, values in rows.values_list("seq", "step", "t", "values")][::-1]


def _machine(run: Run, kind: EventKind, since: float) -> list[Row]:
    rows = MetricRow.objects.filter(run=run, kind=kind, t__gte=since).order_by("-seq")
    newest: list[Row] = [(None, t, values) for t, values in rows.values_list("t", "values")[:SYSTEM_ROWS]]
    return newest[::-1]


def _steps_ago(history: History) -> float:
    """Return the time from which to read machine metrics: SYSTEM_STEPS or two batches ago, and at least SYSTEM_S
    seconds ago."""
    column = history.get("loss") or history.get("reward")
    steps = int(max(SYSTEM_STEPS, 2 * history.config.updates))
    return 0.0 if column is None else float(min(column.t[-1] - SYSTEM_S, column.t[-steps:][0]))


def _lengthen(history: History, run: Run, oldest: int) -> None:
    """Prepend values of earlier chunks to columns that have fewer than RECENT values and don't reach back to the run's
    start. `oldest`: the seq before which these chunks begin."""
    short_columns = [
        name for name, column in history.columns.items() if len(column) < RECENT and column.step[0] > START
    ]
    if not short_columns or not MetricChunk.objects.filter(run=run).exists():
        return
    span = int(RECENT * history.config.updates * run.last_seq / max(run.step, 1))
    chunks = MetricChunk.objects.filter(
        run=run, metric__in=short_columns, first_seq__lt=oldest, last_seq__gte=oldest - span
    )
    for name, count, data in chunks.order_by("metric", "-first_seq").values_list("metric", "points", "data"):
        points = Points.unpack(data, count)
        column = history.columns[name]
        earlier_points = points.pick(points.step < column.step[0])
        history.columns[name] = MetricHistory(
            np.concatenate((earlier_points.step.astype(np.int64), column.step))[-RECENT:],
            np.concatenate((earlier_points.t, column.t))[-RECENT:],
            np.concatenate((earlier_points.value, column.value))[-RECENT:],
        )


def _capacity(attempt: Attempt) -> dict[str, float]:
    inventory = attempt.host.inventory if attempt.host is not None else {}
    gpus = {gpu.get("index"): gpu.get("memory_mib") for gpu in inventory.get("gpus") or ()}
    sizes = {f"gpu/{gpu}/memory_mib": gpus.get(gpu) for gpu in attempt.gpus}
    sizes["host/run_memory_mib"] = inventory.get("memory_mib")
    return {name: float(size) for name, size in sizes.items() if size}


def _since(run: Run, attempt: Attempt) -> float:
    """Return when the attempt completed its first step, by the host's clock, or 0 if it hasn't."""
    rows = MetricRow.objects.filter(run=run, attempt=attempt, kind=EventKind.TRAIN).order_by("seq")
    return rows.values_list("t", flat=True).first() or 0.0


def _read_texts(history: History, run: Run) -> None:
    last = history.texts[-1].step if history.texts else -1
    rows = SampleRow.objects.filter(run=run, mode="train", superseded=False, step__gt=last).order_by("-step", "line")
    newest: dict[int, list[str]] = {}
    stored_texts = [(step, completions(data)) for step, data in rows.values_list("step", "data")[:GROUPS]]
    evidence.note_groups(history, stored_texts)
    for step, group in stored_texts:
        completion_texts = [completion.written for completion in group]
        newest.setdefault(step, []).extend(text for text in completion_texts if text is not None)
    counted = (Text(step, *texts.count(of_step[:COMPLETIONS])) for step, of_step in sorted(newest.items()))
    past.note_texts(history, counted)
    since = history.solved_shares[-1][0] if history.solved_shares else -1
    groups = SampleRow.objects.filter(run=run, mode="train", superseded=False, step__gt=since).order_by("step")
    sums = groups.values_list("step").annotate(Sum("completions"), Sum("solved"))
    past.note_solved(history, list(sums[:NEW_STEPS]))
