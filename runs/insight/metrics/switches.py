"""Settings that speed up a run, and how long a step would take with each of them toggled, estimated from its phases.

The estimates assume that phases that now overlap would run one after the other, and the other way round. They ignore
the effects of sharing a machine.
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

MIN_SPEEDUP = 1.1
TRAINING_PHASES = frozenset({StepPart.LOGPS, StepPart.UPDATE, OPTIMIZER})


@dataclass(frozen=True)
class Switch:
    name: str
    on: bool
    other_s: float | None
    """Seconds that the step would take with the switch toggled, or None if unknown."""
    words: str
    """Sentence about the switch's effect on this step, or about the effect that it would have."""
    advice: str = ""
    """A recommendation to turn the switch on, or "" if that isn't worth it."""


def of(spec: RunSpec, placement: Mapping[str, Any], spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    """Yield the switches that a run can have, judged by a step's spans. `placement` is that of the step's attempt."""
    yield from _generation_ahead(spec, spans, seconds)
    yield from _concurrent_rewards(spec, spans, seconds)
    if "warm" in placement and spec.hardware.vllm_server is not None:
        yield Switch("Warm server", bool(placement["warm"]), None, "It shortens the start but not the steps.")
    if spec.prompts.extra_rounds:
        yield _rounds(spans, seconds)


def _generation_ahead(spec: RunSpec, spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    if spec.hardware.rollout is not Rollout.SERVER:
        return
    generating = [span for span in spans if span.lane.startswith(SERVER) and span.phase == StepPart.GENERATION]
    training = [span for span in spans if span.lane == TRAINER and span.phase in TRAINING_PHASES]
    shared_s = overlap(generating, training)
    name = "One step ahead"
    if getattr(spec, "ahead", shared_s > 0.01 * seconds):
        yield _switch_on(name, seconds, shared_s, "generation during training")
        return
    saved_s = min(union(generating), union(training))
    effect = "It would overlap generation with training: about {step} per step."
    advice = "One step ahead would overlap generation with training, which is about {times:.1f} times as fast."
    yield _switch_off(name, seconds, saved_s, effect, advice)


def _concurrent_rewards(spec: RunSpec, spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    waiting_lanes = [f"{REWARD}{reward.name}" for reward in spec.rewards if waits(LIBRARY[reward.function])]
    if not waiting_lanes or (not spec.rewards_beside and rewards_problem(spec.hardware, spec.episodes) is not None):
        return
    scoring = [span for span in spans if span.lane in waiting_lanes]
    generating = [span for span in spans if span.phase == StepPart.GENERATION]
    name = "Rewards beside generation"
    if spec.rewards_beside:
        # Scoring during generation would otherwise have delayed the step afterwards.
        yield _switch_on(name, seconds, overlap(scoring, generating), "scoring during generation")
        return
    saved_s = min(union(scoring), union(generating), union(span for span in spans if span.lane == REWARDS))
    effect = "It would score groups while others are generated: {step} per step at best."
    advice = (
        f"The step waits {duration(union(scoring))} for rewards. Scoring each group as soon as it is complete would be "
        "up to {times:.1f} times as fast."
    )
    yield _switch_off(name, seconds, saved_s, effect, advice)


def _switch_on(name: str, seconds: float, overlap_s: float, activity: str) -> Switch:
    without_s = seconds + overlap_s
    sentence = f"{duration(overlap_s)} of {activity}; without it, a step would take {duration(without_s)}."
    return Switch(name, True, without_s, sentence)


def _switch_off(name: str, seconds: float, saved: float, effect: str, advice: str) -> Switch:
    """Create a switch that is off. `effect` has a placeholder {step} for the step's duration, `advice` {times} for the
    speed-up."""
    shorter_s = seconds - saved
    times = seconds / shorter_s if shorter_s > 0 else 1.0
    recommendation = advice.format(times=times) if times >= MIN_SPEEDUP else ""
    return Switch(name, False, shorter_s, effect.format(step=duration(shorter_s)), recommendation)


def _rounds(spans: Sequence[Span], seconds: float) -> Switch:
    extra_s = union(span for span in spans if span.lane == EXTRA)
    base_s = seconds - extra_s
    duration_sentence = f"Extra rounds took {duration(extra_s)}"
    sentence = f"{duration_sentence}; without them, a step would take {duration(base_s)} and teach less."
    return Switch("Dynamic sampling", True, base_s, sentence if extra_s else "No extra round was needed in this step.")
