"""Trying out rewards on completions of one row: their scores, and the advantages that training would compute."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.rewards.turns import TrialTurn, turn
from runs.insight.scoring.evaluating import ComponentScores, column
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.advantages import AGGREGATIONS, EPSILON, advantages, mean, standard_deviation
from workers.rewards.reward import Completion

SECONDS = 15.0
"""Seconds after which a request starts no further scoring; scoring under way ends by its own time limits."""

ASKING_SECONDS = 60.0
"""The limit that replaces SECONDS for requests that call other servers."""


@dataclass(frozen=True)
class ScoredCompletion:
    completion: Completion
    scores: "list[Cell]"
    total: float | None
    advantage: float


@dataclass(frozen=True)
class Cell:
    value: float | None
    note: str = ""
    failed: str = ""

    @property
    def trouble(self) -> str:
        return self.failed or self.note


@dataclass(frozen=True)
class ScoredComponent:
    column: ComponentScores
    mean: float | None
    deviation: float | None
    share: float | None
    """The component's share of the variance of the totals, or None if there is no variance. Shares add up to 1."""
    in_total: bool = True
    """True if the component is part of the totals (workers.contract.run.spec.outcome_weights)."""

    @property
    def apart(self) -> bool:
        """True if the component scores turns and is not part of the totals."""
        return self.column.spec.per_turn and not self.in_total

    @property
    def noted(self) -> bool:
        return any(self.column.notes)

    @property
    def share_width(self) -> float:
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
        return [scored for scored in self.columns if scored.column.counts]

    @property
    def missing(self) -> list[ComponentScores]:
        return [scored.column for scored in self.columns if not scored.column.counts]

    @property
    def apart(self) -> list[ScoredComponent]:
        return [scored for scored in self.counted if scored.apart]

    @property
    def widest(self) -> float:
        return max((abs(scored.advantage) for scored in self.group), default=0.0)

    @property
    def flat(self) -> bool:
        """True if no completion has an advantage, so nothing can be learned from this group."""
        return not any(scored.advantage for scored in self.group)


def try_on(
    specs: Sequence[RewardSpec],
    row: Mapping[str, Any],
    completions: Sequence[Completion | str],
    *,
    aggregation: str = AGGREGATIONS[0],
    trial_turn: TrialTurn | None = None,
    ask: bool = False,
) -> PlaygroundTrial:
    """Score one group and compute its advantages as the trainer does, scaled by the group's standard deviation."""
    trial_turn = trial_turn or turn(SECONDS)
    group = [Completion(text) if isinstance(text, str) else text for text in completions]
    columns = [column(spec, group, [row] * len(group), trial_turn, ask=ask) for spec in specs]
    counted_columns = [scores for scores in columns if scores.counts]
    if not group or not counted_columns:
        unscored_columns = [ScoredComponent(scores, None, None, None) for scores in columns]
        unscored_group = [ScoredCompletion(completion, [], None, 0.0) for completion in group]
        return PlaygroundTrial(unscored_columns, unscored_group, None, None, aggregation)
    weights = outcome_weights([scores.spec for scores in counted_columns])
    result = advantages([scores.values for scores in counted_columns], weights, len(group), aggregation)
    shares = dict(zip(map(id, counted_columns), variance_shares(counted_columns, aggregation), strict=True))
    weight_of = dict(zip(map(id, counted_columns), weights, strict=True))
    return PlaygroundTrial(
        columns=[_component(scores, shares.get(id(scores)), weight_of.get(id(scores), 1.0)) for scores in columns],
        group=[
            ScoredCompletion(completion, [_cell(scores, i) for scores in columns], result.totals[i], advantage)
            for i, (completion, advantage) in enumerate(zip(group, result.advantages, strict=True))
        ],
        mean=result.means[0],
        deviation=result.stds[0],
        aggregation=aggregation,
    )


def variance_shares(columns: Sequence[ComponentScores], aggregation: str) -> list[float | None]:
    """Return each component's share of a group's variance: its covariance with the sum divided by the variance of the
    sum. A component with a negative share works against the others."""
    weights = outcome_weights([scores.spec for scores in columns])
    parts = [_contributions(scores, weight, aggregation) for scores, weight in zip(columns, weights, strict=True)]
    if not parts or not parts[0]:
        return [None] * len(parts)
    sums = [math.fsum(summands) for summands in zip(*parts, strict=True)]
    variance = _covariance(sums, sums)
    if variance <= 1e-16:
        return [None] * len(parts)
    return [_covariance(part, sums) / variance for part in parts]


def _contributions(scores: ComponentScores, weight: float, aggregation: str) -> list[float]:
    values = scores.values
    if aggregation == AGGREGATIONS[0]:
        return [weight * (value or 0.0) for value in values]
    average, spread = mean(values), standard_deviation(values)
    if average is None or spread is None:
        return [0.0] * len(values)
    return [0.0 if value is None else weight * (value - average) / (spread + EPSILON) for value in values]


def _covariance(xs: Sequence[float], ys: Sequence[float]) -> float:
    x_mean, y_mean = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    return math.fsum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / len(xs)


def _component(scores: ComponentScores, share: float | None, weight: float) -> ScoredComponent:
    return ScoredComponent(scores, mean(scores.values), standard_deviation(scores.values), share, in_total=bool(weight))


def _cell(scores: ComponentScores, index: int) -> Cell:
    failure_message = next((failure.message for failure in scores.failures if failure.index == index), "")
    return Cell(scores.values[index], scores.notes[index] if index < len(scores.notes) else "", failure_message)
