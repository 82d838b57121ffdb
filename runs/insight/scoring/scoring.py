"""Trying rewards on completions of one row: their scores, and the advantages that training would use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.rewards.turns import TrialTurn, turn
from runs.insight.scoring.evaluating import ComponentScores, column
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.advantages import AGGREGATIONS, EPSILON, advantages, deviation, mean
from workers.rewards.reward import Completion

SECONDS = 15.0
"""Seconds that one request may evaluate; an evaluation under way still ends by its own limits."""

ASKING = 60.0
"""The same if another server is called."""


@dataclass(frozen=True)
class ScoredCompletion:
    completion: Completion
    scores: list[Cell]
    total: float | None
    advantage: float


@dataclass(frozen=True)
class Cell:
    """One component's score of one completion."""

    value: float | None
    note: str = ""
    failed: str = ""

    @property
    def trouble(self) -> str:
        """What there is to know of it: its failure, or its note."""
        return self.failed or self.note


@dataclass(frozen=True)
class ScoredComponent:
    """A component with its figures over the group."""

    column: ComponentScores
    mean: float | None
    deviation: float | None
    share: float | None
    """Share of the variance of the totals; all shares add up to 1. None: no variance."""
    in_total: bool = True
    """Its weight counts in the totals (workers.contract.outcome_weights)."""

    @property
    def apart(self) -> bool:
        """It scores each turn, and the totals are of other components."""
        return self.column.spec.per_turn and not self.in_total

    @property
    def noted(self) -> bool:
        return any(self.column.notes)

    @property
    def share_width(self) -> float:
        """Width of a bar, 0 to 100."""
        return round(100 * min(1.0, max(0.0, self.share or 0.0)), 1)


@dataclass(frozen=True)
class PlaygroundTrial:
    columns: list[ScoredComponent]
    group: list[ScoredCompletion]
    mean: float | None
    deviation: float | None
    aggregation: str

    @property
    def counted(self) -> list[ScoredComponent]:
        return [one for one in self.columns if one.column.counts]

    @property
    def missing(self) -> list[ComponentScores]:
        """Components that are missing from the totals."""
        return [one.column for one in self.columns if not one.column.counts]

    @property
    def apart(self) -> list[ScoredComponent]:
        return [one for one in self.counted if one.apart]

    @property
    def widest(self) -> float:
        """The largest size of an advantage."""
        return max((abs(one.advantage) for one in self.group), default=0.0)

    @property
    def flat(self) -> bool:
        """True if nothing can be learnt from this group."""
        return not any(one.advantage for one in self.group)


def try_on(
    specs: Sequence[RewardSpec],
    row: Mapping[str, Any],
    completions: Sequence[Completion | str],
    *,
    aggregation: str = AGGREGATIONS[0],
    own: TrialTurn | None = None,
    ask: bool = False,
) -> PlaygroundTrial:
    """Scores and advantages as the trainer computes them for one group, scaled by the group's own deviation."""
    own = own or turn(SECONDS)
    group = [Completion(one) if isinstance(one, str) else one for one in completions]
    columns = [column(spec, group, [row] * len(group), own, ask=ask) for spec in specs]
    counted = [one for one in columns if one.counts]
    if not group or not counted:
        unscored = [ScoredComponent(one, None, None, None) for one in columns]
        return PlaygroundTrial(
            unscored, [ScoredCompletion(one, [], None, 0.0) for one in group], None, None, aggregation
        )
    weights = outcome_weights([one.spec for one in counted])
    result = advantages([one.values for one in counted], weights, len(group), aggregation)
    shares = dict(zip(map(id, counted), variance_shares(counted, aggregation), strict=True))
    weight_of = dict(zip(map(id, counted), weights, strict=True))
    return PlaygroundTrial(
        columns=[_shown(one, shares.get(id(one)), weight_of.get(id(one), 1.0)) for one in columns],
        group=[
            ScoredCompletion(one, [_cell(c, i) for c in columns], result.totals[i], pushed)
            for i, (one, pushed) in enumerate(zip(group, result.advantages, strict=True))
        ],
        mean=result.means[0],
        deviation=result.stds[0],
        aggregation=aggregation,
    )


def variance_shares(columns: Sequence[ComponentScores], aggregation: str) -> list[float | None]:
    """Each component's share of a group's variance: its covariance with the sum, over the sum's variance.

    A negative share means that the component works against the others.
    """
    weights = outcome_weights([one.spec for one in columns])
    parts = [_contributions(one, weight, aggregation) for one, weight in zip(columns, weights, strict=True)]
    if not parts or not parts[0]:
        return [None] * len(parts)
    sums = [math.fsum(at) for at in zip(*parts, strict=True)]
    variance = _covariance(sums, sums)
    if variance <= 1e-16:
        return [None] * len(parts)
    return [_covariance(part, sums) / variance for part in parts]


def _contributions(one: ComponentScores, weight: float, aggregation: str) -> list[float]:
    """The component's contribution to each completion's sum."""
    values = one.values
    if aggregation == AGGREGATIONS[0]:
        return [weight * (value or 0.0) for value in values]
    middle, spread = mean(values), deviation(values)
    if middle is None or spread is None:
        return [0.0] * len(values)
    return [0.0 if value is None else weight * (value - middle) / (spread + EPSILON) for value in values]


def _covariance(one: Sequence[float], other: Sequence[float]) -> float:
    middle, its = math.fsum(one) / len(one), math.fsum(other) / len(other)
    return math.fsum((a - middle) * (b - its) for a, b in zip(one, other, strict=True)) / len(one)


def _shown(one: ComponentScores, share: float | None, weight: float) -> ScoredComponent:
    return ScoredComponent(one, mean(one.values), deviation(one.values), share, in_total=bool(weight))


def _cell(one: ComponentScores, index: int) -> Cell:
    failed = next((failure.message for failure in one.failures if failure.index == index), "")
    return Cell(one.values[index], one.notes[index] if index < len(one.notes) else "", failed)
