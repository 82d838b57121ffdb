"""Optional ways to speed up a run, and the duration of a step with each of them the other way, by its measured phases.

The durations are estimates: phases that overlap now would run one after the other, and the reverse. They ignore the
effects of sharing a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.platform.templatetags.figures import duration
from workers.contract.reports.waterfall import (
    EXTRA,
    OPTIMIZER,
    REWARD,
    REWARDS,
    SERVER,
    TRAINER,
    Span,
    overlap,
    union,
)
from workers.contract.run import concurrent_rewards
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import RunSpec
from workers.contract.wire.names import StepPart
from workers.rewards.library import LIBRARY
from workers.rewards.reward import waits

WORTH_SAYING = 1.1
"""The speed-up from which a switch is recommended."""
TRAINING = frozenset({StepPart.LOGPS, StepPart.UPDATE, OPTIMIZER})


@dataclass(frozen=True)
class Switch:
    name: str
    on: bool
    other_s: float | None
    """Seconds of the step with the switch the other way; None: unknown."""
    words: str
    """Its effect on this step, or the effect that it would have."""
    advice: str = ""
    """A recommendation to turn it on; empty if that isn't worth it."""


def of(spec: RunSpec, placement: Mapping[str, Any], spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    """The switches that a run can have. `placement`: the attempt's."""
    yield from _ahead(spec, spans, seconds)
    yield from _beside(spec, spans, seconds)
    if "warm" in placement and spec.hardware.vllm_server is not None:
        yield Switch("Warm server", bool(placement["warm"]), None, "It shortens the start, but no step.")
    if spec.prompts.extra_rounds:
        yield _rounds(spans, seconds)


def _ahead(spec: RunSpec, spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    if spec.hardware.rollout is not Rollout.SERVER:
        return
    generating = [span for span in spans if span.lane.startswith(SERVER) and span.phase == StepPart.GENERATION]
    training = [span for span in spans if span.lane == TRAINER and span.phase in TRAINING]
    both = overlap(generating, training)
    name = "One step ahead"
    if getattr(spec, "ahead", both > 0.01 * seconds):
        words = f"{duration(both)} of generation during training; a step would take {duration(seconds + both)} without."
        yield Switch(name, True, seconds + both, words)
        return
    saved = min(union(generating), union(training))
    with_, times = seconds - saved, _times(seconds, seconds - saved)
    words = f"It would overlap generation with training: about {duration(with_)} a step."
    advice = f"One step ahead would overlap generation with training: about {times:.1f} times the steps."
    yield Switch(name, False, with_, words, advice if times >= WORTH_SAYING else "")


def _beside(spec: RunSpec, spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    waiting = [f"{REWARD}{reward.name}" for reward in spec.rewards if waits(LIBRARY[reward.function])]
    if not waiting or (
        not spec.rewards_beside and concurrent_rewards.problem(spec.hardware, spec.episodes) is not None
    ):
        return
    scoring = [span for span in spans if span.lane in waiting]
    generating = [span for span in spans if span.phase == StepPart.GENERATION]
    name = "Rewards beside generation"
    if spec.rewards_beside:
        # Scoring during generation would otherwise have delayed the step afterwards.
        both = overlap(scoring, generating)
        words = f"{duration(both)} of scoring during generation; a step would take {duration(seconds + both)} without."
        yield Switch(name, True, seconds + both, words)
        return
    saved = min(union(scoring), union(generating), union(span for span in spans if span.lane == REWARDS))
    with_, times = seconds - saved, _times(seconds, seconds - saved)
    words = f"It would score groups while others are generated: {duration(with_)} a step at best."
    advice = (
        f"The step waits {duration(union(scoring))} for rewards: scoring each group as soon as it is complete would "
        f"give up to {times:.1f} times the steps."
    )
    yield Switch(name, False, with_, words, advice if times >= WORTH_SAYING else "")


def _rounds(spans: Sequence[Span], seconds: float) -> Switch:
    extra = union(span for span in spans if span.lane == EXTRA)
    words = (
        f"Extra rounds took {duration(extra)}; without, a step would take {duration(seconds - extra)} and teach less."
    )
    if not extra:
        words = "No extra round was needed in this step."
    return Switch("Dynamic sampling", True, seconds - extra, words)


def _times(before: float, after: float) -> float:
    return before / after if after > 0 else 1.0
