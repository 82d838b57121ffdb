"""One step of a run on one time axis: when each phase began and ended, who was idle meanwhile, and what that means.

Read from what the trainer tells of its steps (`StepSpans`). Lanes may overlap: what a server generates for the next
batch is in the step that trains on this one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
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

OFFERED = 100
"""Newest steps to choose from."""
LATEST = 20
"""Of so many the median is shown, where no step is chosen."""
FEWEST_SAMPLES = 2
"""Of a GPU within the step, without which its use is not shown."""
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
"""Words and colour of each phase, those of the chart Where a step's time goes among them."""


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
    """Seconds in which it worked."""
    idle: float | None
    """The share of the step in which it didn't; None where nobody would want it to."""
    gaps: tuple[tuple[float, float], ...] = ()
    """When it was idle: (start, seconds)."""

    @property
    def idle_s(self) -> float:
        return sum(seconds for _, seconds in self.gaps)


@dataclass(frozen=True)
class GpuUse:
    """Of one side's GPUs within the step."""

    label: str
    mean: float
    """Percent."""
    t: tuple[float, ...]
    """Seconds from the step's begin."""
    percent: tuple[float, ...]


@dataclass(frozen=True)
class StepView:
    run: Run
    spec: RunSpec | None
    step: int
    began: float
    seconds: float
    spans: tuple[Span, ...]
    among: int
    """It is the median of so many steps; 0: it was chosen."""
    left_out: int
    """Among them no step counts that generated nothing; so many there were."""
    offered: tuple[int, ...]
    """Steps to choose from, the newest first."""
    placement: dict[str, Any] = field(default_factory=dict)
    """Of the attempt that made the step."""
    gpus: tuple[GpuUse, ...] = ()

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(_lanes(self))

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        return tuple(switches.of(self.spec, self.placement, self.spans, self.seconds)) if self.spec else ()

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(_words(self))

    @property
    def phases(self) -> list[tuple[str, str]]:
        """(words, colour) of each that is drawn; a component's name is that of its lane."""
        lanes = [lane for lane in self.lanes if not lane.key.startswith(REWARD)]
        return list(dict.fromkeys((bar.phase, bar.colour) for lane in lanes for bar in lane.bars))

    @property
    def rows(self) -> Iterator[tuple[Lane, WaterfallBar]]:
        """Of the table."""
        for lane in self.lanes:
            for bar in lane.bars:
                yield lane, bar

    @property
    def as_text(self) -> str:
        return json.dumps(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Of the drawing, and of the HTTP API."""
        return {
            "step": self.step,
            "began": self.began,
            "seconds": self.seconds,
            "median_of": self.among,
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
            "words": list(self.words),
            "steps": list(self.offered),
        }


def of_run(run: Run, step: int | None = None) -> StepView | None:
    """The step, or the median of the latest ones that generate; None if nothing is known of it, or of any."""
    told = StepSpans.objects.filter(run=run).order_by("-seq")
    offered = list(told.values_list("step", flat=True)[:OFFERED])
    if not offered:
        return None
    among = left_out = 0
    if step is not None:
        record = told.filter(step=step).first()
    else:
        latest = [one for one in told[:LATEST] if one.step > 1] or list(told[:LATEST])
        generating = [one for one in latest if _generates(one)] or latest
        left_out, latest = len(latest) - len(generating), generating
        middle = statistics.median_low(one.seconds for one in latest)
        record, among = next(one for one in latest if one.seconds == middle), len(latest)
    if record is None:
        return None
    spans = tuple(Span(*one) for one in record.spans)
    view = StepView(
        run,
        _spec(run),
        record.step,
        record.began,
        record.seconds,
        spans,
        among,
        left_out,
        tuple(dict.fromkeys(offered)),
        record.attempt.placement or {},
    )
    return replace(view, gpus=tuple(_gpus(view)))


def _generates(record: StepSpans) -> bool:
    """Steps that reuse a batch are shorter, and nobody waits in them."""
    return any(phase == StepPart.GENERATION for _, phase, _, _ in record.spans)


def _spec(run: Run) -> RunSpec | None:
    try:
        return spec_of(run)
    except ContractError:  # of another version
        return None


# --- lanes ------------------------------------------------------------------------------------------------------------


def _lanes(view: StepView) -> Iterator[Lane]:
    by_lane: dict[str, list[Span]] = {}
    for span in view.spans:
        by_lane.setdefault(span.lane, []).append(span)
    rewards = {reward.name: colour(i) for i, reward in enumerate(view.spec.rewards if view.spec else ())}
    for key in sorted(by_lane, key=_place):
        spans, busy = by_lane[key], union(by_lane[key])
        of_reward = rewards.get(key.removeprefix(REWARD), "") if key.startswith(REWARD) else ""
        bars = tuple(_bar(span, of_reward) for span in spans)
        works = key == TRAINER or key.startswith(SERVER)
        idle = max(0.0, 1 - busy / view.seconds) if works and view.seconds > 0 else None
        yield Lane(key, label_of(key), bars, busy, idle, tuple(_gaps(spans, view.seconds)) if works else ())


def _gaps(spans: Sequence[Span], seconds: float) -> Iterator[tuple[float, float]]:
    until = 0.0
    for span in sorted(spans, key=lambda one: one.start):
        if span.start > until:
            yield until, span.start - until
        until = max(until, span.end)
    if until < seconds:
        yield until, seconds - until


def _place(key: str) -> tuple[int, str]:
    """Servers, the trainer, then what it waits for."""
    order = (key.startswith(SERVER), key == TRAINER, key == REWARDS, key.startswith(REWARD), True)
    return order.index(True), key


def label_of(key: str) -> str:
    if key.startswith(SERVER):
        return key.replace("vllm", "vLLM").replace("-", " ")
    words = {TRAINER: "Trainer", REWARDS: "Rewards", EXTRA: "Dynamic sampling"}
    return words.get(key) or key.removeprefix(REWARD)


def _bar(span: Span, of_reward: str) -> WaterfallBar:
    words, colour_ = PHASES.get(span.phase, (span.phase.replace("_", " "), "c8"))
    return WaterfallBar(words, of_reward or colour_, span.start, span.seconds)


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _gpus(view: StepView) -> Iterator[GpuUse]:
    """The use of the trainer's GPUs and of the servers', as far as they were sampled within the step."""
    sides = {"the trainer’s GPUs": view.placement.get("gpus"), "vLLM’s GPUs": view.placement.get("server_gpus")}
    names = {gpu: f"gpu/{gpu}/util_percent" for gpus in sides.values() for gpu in gpus or ()}
    if not names:
        return
    window = series.Window("time", view.began, view.began + view.seconds)
    found = series.series(view.run, list(names.values()), 200, window)["series"]
    for label, gpus in sides.items():
        columns = [found[names[gpu]] for gpu in gpus or () if names[gpu] in found]
        points = sorted(
            (t - view.began, value)
            for column in columns
            for t, value in zip(column["t"], column["value"], strict=True)
            if 0 <= t - view.began <= view.seconds
        )
        if len(points) >= FEWEST_SAMPLES * max(1, len(columns)):
            t, percent = zip(*_means(points), strict=True)
            yield GpuUse(label, statistics.fmean(value for _, value in points), t, percent)


def _means(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """One for each moment: the mean of the side's GPUs."""
    by_moment: dict[float, list[float]] = {}
    for t, value in points:
        by_moment.setdefault(round(t, 2), []).append(value)
    for t, values in by_moment.items():
        yield t, statistics.fmean(values)


# --- words ------------------------------------------------------------------------------------------------------------


def _words(view: StepView) -> Iterator[str]:
    idle = [
        f"{'the trainer' if lane.key == TRAINER else lane.label} {lane.idle:.0%}"
        for lane in view.lanes
        if lane.idle is not None
    ]
    if idle:
        yield f"Idle in it: {', '.join(idle)}."
    if view.gpus:
        use = " and ".join(f"{use.label} {use.mean:.0f}%" for use in view.gpus)
        yield f"Busy by samples: {use}."
    for switch in view.switches:
        if switch.advice:
            yield switch.advice
