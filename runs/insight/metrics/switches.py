"""What a run has switched on to be faster, and what a step would take without it, or with it, by its measured phases.

Estimates: what overlaps now would follow each other without, and what follows each other now would overlap with. Waits
that come of sharing a machine are not in them.
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
"""How many times the steps something has to give before it is recommended."""
TRAINING = frozenset({StepPart.LOGPS, StepPart.UPDATE, OPTIMIZER})


@dataclass(frozen=True)
class Switch:
    name: str
    on: bool
    other_s: float | None
    """Seconds of the step with the switch the other way; None: nothing can be said of it."""
    words: str
    """What it does for this step, or would do."""
    advice: str = ""
    """Where turning it on is worth it."""


def of(spec: RunSpec, placement: Mapping[str, Any], spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    """Those that this run can have. `placement`: of the attempt."""
    yield from _ahead(spec, spans, seconds)
    yield from _beside(spec, spans, seconds)
    if "warm" in placement and spec.hardware.vllm_server is not None:
        yield Switch("Warm server", bool(placement["warm"]), None, "It shortens the start, and no step.")
    if spec.prompts.extra_rounds:
        yield _rounds(spans, seconds)


def _ahead(spec: RunSpec, spans: Sequence[Span], seconds: float) -> Iterator[Switch]:
    if spec.hardware.rollout is not Rollout.SERVER:
        return
    generating = [one for one in spans if one.lane.startswith(SERVER) and one.phase == StepPart.GENERATION]
    training = [one for one in spans if one.lane == TRAINER and one.phase in TRAINING]
    both = overlap(generating, training)
    name = "One step ahead"
    if getattr(spec, "ahead", both > 0.01 * seconds):
        words = f"{duration(both)} of generation beside training; a step would take {duration(seconds + both)} without."
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
    scoring = [one for one in spans if one.lane in waiting]
    generating = [one for one in spans if one.phase == StepPart.GENERATION]
    name = "Rewards beside generation"
    if spec.rewards_beside:
        # What was scored while the trainer waited for generation would have been waited for afterwards.
        both = overlap(scoring, generating)
        words = f"{duration(both)} of scoring beside generation; a step would take {duration(seconds + both)} without."
        yield Switch(name, True, seconds + both, words)
        return
    saved = min(union(scoring), union(generating), union(one for one in spans if one.lane == REWARDS))
    with_, times = seconds - saved, _times(seconds, seconds - saved)
    words = f"It would score groups while others are generated: {duration(with_)} a step at best."
    advice = (
        f"Rewards are waited for {duration(union(scoring))}: scoring each group as soon as it is complete would give "
        f"up to {times:.1f} times the steps."
    )
    yield Switch(name, False, with_, words, advice if times >= WORTH_SAYING else "")


def _rounds(spans: Sequence[Span], seconds: float) -> Switch:
    extra = union(one for one in spans if one.lane == EXTRA)
    words = (
        f"Extra rounds took {duration(extra)}; a step would take {duration(seconds - extra)} without, and teach less."
    )
    if not extra:
        words = "No extra round was needed in this step."
    return Switch("Dynamic sampling", True, seconds - extra, words)


def _times(before: float, after: float) -> float:
    return before / after if after > 0 else 1.0
