"""One step of a run on a time axis: when each phase began and ended, which processes were idle, and advice.

It is based on the timings that the trainer reports (`StepSpans`). Lanes may overlap, since a server's generation of the
next batch belongs to the step that trains on the current batch.
"""

import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.engine.step_spans import StepSpans
from runs.insight.metrics import series, switches
from runs.insight.metrics.chart_spec import colour
from runs.insight.metrics.switches import Switch
from workers.contract.reports.waterfall import EXTRA, OPTIMIZER, REWARD, REWARDS, SERVER, TRAINER, Span, union
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import StepPart

MAX_OFFERED_STEPS = 100
LATEST_STEPS = 20
"""Number of newest steps whose median is shown if no step is chosen."""
MIN_SAMPLES = 2
"""Minimum number of samples of a GPU within the step for showing its utilization."""
PHASES: dict[str, tuple[str, str]] = {
    StepPart.GENERATION: ("generation", "c1"),
    StepPart.REWARDS: ("rewards", "c2"),
    StepPart.LOGPS: ("log-probabilities", "c3"),
    StepPart.UPDATE: ("forward and backward", "c4"),
    StepPart.WEIGHT_SYNC: ("weights to vLLM", "c5"),
    OPTIMIZER: ("optimizer", "c6"),
    StepPart.SAVING: ("checkpoint", "c7"),
    StepPart.EVALUATION: ("evaluation", "c8"),
    EXTRA: ("extra round", "c2"),
}
"""Phase -> its name and colour, as in the chart “Where a step's time goes”."""


@dataclass(frozen=True)
class WaterfallBar:
    phase: str
    colour: str
    start: float
    seconds: float

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True)
class Lane:
    key: str
    label: str
    bars: tuple[WaterfallBar, ...]
    busy: float
    idle: float | None
    """Share of the step for which the lane was idle; None for lanes that needn't be busy."""
    gaps: tuple[tuple[float, float], ...] = ()

    @property
    def idle_s(self) -> float:
        return sum(seconds for _, seconds in self.gaps)


@dataclass(frozen=True)
class GpuUse:
    """Utilization of the trainer's or vLLM's GPUs within the step."""

    label: str
    mean: float
    t: tuple[float, ...]
    percent: tuple[float, ...]


@dataclass(frozen=True)
class StepView:
    run: Run
    spec: RunSpec | None
    step: int
    began: float
    seconds: float
    spans: tuple[Span, ...]
    median_of: int
    """Number of steps of which this one is the median, or 0 if it was chosen."""
    left_out: int
    """Number of recent steps that generated nothing, which the median excludes."""
    offered: tuple[int, ...]
    placement: dict[str, Any] = field(default_factory=dict)
    gpus: tuple[GpuUse, ...] = ()

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(_lanes(self))

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        return tuple(switches.of(self.spec, self.placement, self.spans, self.seconds)) if self.spec else ()

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentences(self))

    @property
    def phases(self) -> list[tuple[str, str]]:
        """Legend as (name, colour), without reward components, whose lanes have their names."""
        lanes = [lane for lane in self.lanes if not lane.key.startswith(REWARD)]
        return list(dict.fromkeys((bar.phase, bar.colour) for lane in lanes for bar in lane.bars))

    @property
    def rows(self) -> Iterator[tuple[Lane, WaterfallBar]]:
        for lane in self.lanes:
            for bar in lane.bars:
                yield lane, bar

    @property
    def as_text(self) -> str:
        return json.dumps(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "began": self.began,
            "seconds": self.seconds,
            "median_of": self.median_of,
            "lanes": [
                {
                    "key": lane.key,
                    "label": lane.label,
                    "busy_s": round(lane.busy, 4),
                    "idle": None if lane.idle is None else round(lane.idle, 4),
                    "bars": [vars(bar) for bar in lane.bars],
                    "gaps": lane.gaps,
                }
                for lane in self.lanes
            ],
            "gpus": [vars(use) for use in self.gpus],
            "switches": [vars(switch) for switch in self.switches],
            "words": list(self.sentences),
            "steps": list(self.offered),
        }


def of_run(run: Run, step: int | None = None) -> StepView | None:
    """Return the view of a step, or of the median of the latest steps that generate; None if there is no such step."""
    records = StepSpans.objects.filter(run=run).order_by("-seq")
    offered_steps = list(records.values_list("step", flat=True)[:MAX_OFFERED_STEPS])
    if not offered_steps:
        return None
    median_of = left_out = 0
    if step is not None:
        record = records.filter(step=step).first()
    else:
        latest_records = [spans for spans in records[:LATEST_STEPS] if spans.step > 1] or list(records[:LATEST_STEPS])
        # Steps that reuse a batch are shorter, and nothing waits in them.
        generating = [
            spans for spans in latest_records if any(phase == StepPart.GENERATION for _, phase, _, _ in spans.spans)
        ] or latest_records
        left_out, median_of = len(latest_records) - len(generating), len(generating)
        median_seconds = statistics.median_low(spans.seconds for spans in generating)
        record = next(spans for spans in generating if spans.seconds == median_seconds)
    if record is None:
        return None
    spec = None
    with suppress(ContractError):  # of another version
        spec = spec_of(run)
    spans, steps = tuple(Span(*span) for span in record.spans), tuple(dict.fromkeys(offered_steps))
    placement = record.attempt.placement or {}
    view = StepView(run, spec, record.step, record.began, record.seconds, spans, median_of, left_out, steps, placement)
    return replace(view, gpus=tuple(_gpus(view)))


# --- lanes ------------------------------------------------------------------------------------------------------------


def _lanes(view: StepView) -> Iterator[Lane]:
    by_lane: dict[str, list[Span]] = {}
    for span in view.spans:
        by_lane.setdefault(span.lane, []).append(span)
    rewards = {reward.name: colour(i) for i, reward in enumerate(view.spec.rewards if view.spec else ())}
    for key in sorted(by_lane, key=_order):
        spans, busy_s = by_lane[key], union(by_lane[key])
        of_reward = rewards.get(key.removeprefix(REWARD), "") if key.startswith(REWARD) else ""
        bars = tuple(_bar(span, of_reward) for span in spans)
        is_working = key == TRAINER or key.startswith(SERVER)
        idle_share = max(0.0, 1 - busy_s / view.seconds) if is_working and view.seconds > 0 else None
        yield Lane(
            key, label_of(key), bars, busy_s, idle_share, tuple(_gaps(spans, view.seconds)) if is_working else ()
        )


def _gaps(spans: Sequence[Span], seconds: float) -> Iterator[tuple[float, float]]:
    until = 0.0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > until:
            yield until, span.start - until
        until = max(until, span.end)
    if until < seconds:
        yield until, seconds - until


def _order(key: str) -> tuple[int, str]:
    """Return a lane's sort key: servers come first, then the trainer, then the rewards that it waits for."""
    kinds = (key.startswith(SERVER), key == TRAINER, key == REWARDS, key.startswith(REWARD), True)
    return kinds.index(True), key


def label_of(key: str) -> str:
    if key.startswith(SERVER):
        return key.replace("vllm", "vLLM").replace("-", " ")
    labels = {TRAINER: "Trainer", REWARDS: "Rewards", EXTRA: "Dynamic sampling"}
    return labels.get(key) or key.removeprefix(REWARD)


def _bar(span: Span, of_reward: str) -> WaterfallBar:
    label, colour_ = PHASES.get(span.phase, (span.phase.replace("_", " "), "c8"))
    return WaterfallBar(label, of_reward or colour_, span.start, span.seconds)


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _gpus(view: StepView) -> Iterator[GpuUse]:
    """Yield the utilization of the trainer's and the servers' GPUs, if they were sampled within the step."""
    sides = {"the trainer’s GPUs": view.placement.get("gpus"), "vLLM’s GPUs": view.placement.get("server_gpus")}
    names = {gpu: f"gpu/{gpu}/util_percent" for gpus in sides.values() for gpu in gpus or ()}
    if not names:
        return
    window = series.Window("time", view.began, view.began + view.seconds)
    histories = series.series(view.run, list(names.values()), 200, window)["series"]
    for label, gpus in sides.items():
        columns = [histories[names[gpu]] for gpu in gpus or () if names[gpu] in histories]
        points = sorted(
            (t - view.began, value)
            for column in columns
            for t, value in zip(column["t"], column["value"], strict=True)
            if 0 <= t - view.began <= view.seconds
        )
        if len(points) >= MIN_SAMPLES * max(1, len(columns)):
            t, percent = zip(*_means(points), strict=True)
            yield GpuUse(label, statistics.fmean(value for _, value in points), t, percent)


def _means(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Average the utilization over all GPUs at each moment."""
    by_moment: dict[float, list[float]] = {}
    for t, value in points:
        by_moment.setdefault(round(t, 2), []).append(value)
    for t, values in by_moment.items():
        yield t, statistics.fmean(values)


# --- sentences --------------------------------------------------------------------------------------------------------


def _sentences(view: StepView) -> Iterator[str]:
    idle_lanes = [
        f"{'the trainer' if lane.key == TRAINER else lane.label} {lane.idle:.0%}"
        for lane in view.lanes
        if lane.idle is not None
    ]
    if idle_lanes:
        yield f"Idle: {', '.join(idle_lanes)}."
    if view.gpus:
        use = " and ".join(f"{use.label} {use.mean:.0f}%" for use in view.gpus)
        yield f"Sampled utilization: {use}."
    for switch in view.switches:
        if switch.advice:
            yield switch.advice
