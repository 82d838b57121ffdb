"""Optional ways to speed up a run, and the duration of a step with each of them the other way, by its measured phases.

The durations are estimates: phases that overlap now would run one after the other, and the reverse. They ignore the
effects of sharing a machine.
"""

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
from workers.contract.run.hardware import Rollout
from workers.contract.run.overlapping import rewards_problem
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
    """Judge the switches that a run can have by a step's spans. `placement`: the attempt's."""
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
    shared = overlap(generating, training)
    name = "One step ahead"
    if getattr(spec, "ahead", shared > 0.01 * seconds):
        yield _on(name, seconds, shared, "generation during training")
        return
    saved = min(union(generating), union(training))
    effect = "It would overlap generation with training: about {step} a step."
    advice = "One step ahead would overlap generation with training: about {times:.1f} times the steps."
    yield _off(name, seconds, saved, effect, advice)


def _beside(spec: RunSpec, spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    waiting = [f"{REWARD}{reward.name}" for reward in spec.rewards if waits(LIBRARY[reward.function])]
    if not waiting or (not spec.rewards_beside and rewards_problem(spec.hardware, spec.episodes) is not None):
        return
    scoring = [span for span in spans if span.lane in waiting]
    generating = [span for span in spans if span.phase == StepPart.GENERATION]
    name = "Rewards beside generation"
    if spec.rewards_beside:
        # Scoring during generation would otherwise have delayed the step afterwards.
        yield _on(name, seconds, overlap(scoring, generating), "scoring during generation")
        return
    saved = min(union(scoring), union(generating), union(span for span in spans if span.lane == REWARDS))
    effect = "It would score groups while others are generated: {step} a step at best."
    advice = (
        f"The step waits {duration(union(scoring))} for rewards: scoring each group as soon as it is complete would "
        "give up to {times:.1f} times the steps."
    )
    yield _off(name, seconds, saved, effect, advice)


def _on(name: str, seconds: float, overlap_s: float, activity: str) -> Switch:
    without = seconds + overlap_s
    words = f"{duration(overlap_s)} of {activity}; a step would take {duration(without)} without."
    return Switch(name, True, without, words)


def _off(name: str, seconds: float, saved: float, effect: str, advice: str) -> Switch:
    """Make a switch that is off. `effect`: with {step}, its duration; `advice`: with {times}, the speed-up."""
    shorter = seconds - saved
    times = seconds / shorter if shorter > 0 else 1.0
    recommended = advice.format(times=times) if times >= WORTH_SAYING else ""
    return Switch(name, False, shorter, effect.format(step=duration(shorter)), recommended)


def _rounds(spans: Sequence[Span], seconds: float) -> Switch:
    extra = union(span for span in spans if span.lane == EXTRA)
    without = seconds - extra
    words = f"Extra rounds took {duration(extra)}; without, a step would take {duration(without)} and teach less."
    return Switch("Dynamic sampling", True, without, words if extra else "No extra round was needed in this step.")
