"""Scores of completions by the components of a config, each with how it went: the playground's and the replay's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from controlplane.rewards.turns import Turn
from workers.contract import RewardSpec
from workers.rewards import LIBRARY, Completion, Cost, Failure, Reward, score
from workers.rewards.reward import Row

WAITS = {Cost.HTTP: ("timeout_s", "batch_s"), Cost.SANDBOX: ("seconds",)}
"""Parameters of how long another server is waited for, and of how long code may run, in seconds."""
ONLY_TRAINER = "Scored by the trainer only: it depends on the running model."
ASKS = "It calls another server, so it is scored on request."


class How(StrEnum):
    """Where a component's scores are from, or why it has none."""

    SCORED = "scored"
    RECORDED = "recorded"
    """What the run itself gave: the component is one of its own."""
    TRAINER = "trainer"
    ASKS = "asks"
    UNAVAILABLE = "unavailable"
    LATE = "late"


@dataclass(frozen=True)
class ComponentScores:
    """One component's scores of a batch."""

    spec: RewardSpec
    reward: Reward
    values: list[float | None]
    """One a completion; None where it doesn't apply, failed, or was not scored."""
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None
    how: How = How.SCORED
    why: str = ""
    """Of scores that are missing."""

    @property
    def counts(self) -> bool:
        """Whether totals have it."""
        return self.how in (How.SCORED, How.RECORDED)


def column(
    spec: RewardSpec,
    completions: Sequence[Completion],
    rows: Sequence[Row],
    turn: Turn,
    *,
    ask: bool = False,
    recorded: list[float | None] | None = None,
) -> ComponentScores:
    """rows[i] is what completions[i] answers. `ask`: rewards that ask another server may. `recorded`: scores that the
    same component gave these completions, taken where it can't or may not be scored here."""
    reward = LIBRARY[spec.function]
    nothing: list[float | None] = [None] * len(completions)
    if reward.cost is Cost.TRAINER or (reward.cost is Cost.HTTP and not ask):
        if recorded is not None:
            return ComponentScores(spec, reward, recorded, how=How.RECORDED)
        trainer = reward.cost is Cost.TRAINER
        return ComponentScores(
            spec,
            reward,
            nothing,
            how=How.TRAINER if trainer else How.ASKS,
            why=ONLY_TRAINER if trainer else ASKS,
        )
    if not completions:
        return ComponentScores(spec, reward, [], seconds=0.0)
    turn.late, turn.unavailable = False, ""
    started = time.perf_counter()
    params = _params(reward, spec, turn)
    scores = score(reward, completions, rows, params, turn.tools)
    seconds = time.perf_counter() - started
    if scores.failures and turn.over and _is_cut(reward, spec, params):
        turn.late = True
    if turn.unavailable:
        return ComponentScores(spec, reward, nothing, how=How.UNAVAILABLE, why=turn.unavailable)
    if turn.late:
        return ComponentScores(spec, reward, nothing, seconds=seconds, how=How.LATE, why="Scoring timed out.")
    return ComponentScores(spec, reward, scores.values, scores.failures, scores.notes, seconds)


def _params(reward: Reward, spec: RewardSpec, turn: Turn) -> dict[str, Any]:
    """Those of the component; nobody waits longer for another server, or for code, than the page has time: code that
    doesn't end keeps what it runs in from everybody else."""
    waits = WAITS.get(reward.cost)
    if waits is None:
        return dict(spec.params)
    left = max(1.0, turn.until - time.monotonic())
    given = reward.defaults() | spec.params
    return given | {name: min(given[name], left) for name in waits if name in given}


def _is_cut(reward: Reward, spec: RewardSpec, params: dict[str, Any]) -> bool:
    """Whether code had less time than it is to have, so that its failures may be the page's doing."""
    own = reward.defaults() | spec.params
    return reward.cost is Cost.SANDBOX and any(params.get(name) != own.get(name) for name in WAITS[Cost.SANDBOX])
