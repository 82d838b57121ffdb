"""The components of a run that score each turn: their scores for a batch, and the advantages from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workers.contract.run.episodes import MAX_TURNS_CHARTED, EpisodeSpec, turn_reward
from workers.contract.run.spec import RunSpec
from workers.rewards.advantages import mean
from workers.trainer.episodes import credit

Gather = Callable[[list[Any]], list[Any]]
"""Function that concatenates the lists of all ranks, in rank order."""


@dataclass
class TurnCredit:
    """Converter from scores per turn to advantages per token."""

    columns: Mapping[str, int]
    """Column of each component that scores turns, in the rewards that TRL aggregates."""
    weights: Sequence[float]
    outcomes: Sequence[int]
    """Columns of the other components, which form the outcome; empty if only turns are scored."""
    coef: float
    scores: dict[str, list[list[float | None]]] = field(default_factory=dict)
    """scores[completion][turn] of this rank's last batch, by component; written by the reward functions."""

    @classmethod
    def of(cls, run: RunSpec) -> "TurnCredit | None":
        """Create it from the run's components; return None if all score whole completions."""
        columns = {reward.name: column for column, reward in enumerate(run.rewards) if reward.per_turn}
        if not columns:
            return None
        has_outcome = any(reward.weight for reward in run.rewards if not reward.per_turn)
        return cls(
            columns,
            [reward.weight for reward in run.rewards if reward.per_turn],
            [column for column, reward in enumerate(run.rewards) if not reward.per_turn] if has_outcome else [],
            (run.episodes or EpisodeSpec()).turn_advantage_coef,
        )

    def drop_unscored(self, rewards: torch.Tensor) -> None:
        """Remove the turn scores of completions that have no outcome; TRL would treat a missing outcome as 0."""
        if self.outcomes:
            lacks_outcome = rewards[:, list(self.outcomes)].isnan().all(dim=1)
            for column in self.columns.values():
                rewards[lacks_outcome, column] = torch.nan

    def advantages(
        self,
        outcome: torch.Tensor,
        completions: Sequence[Any],
        ids: Sequence[Sequence[int]],
        *,
        width: int,
        group: int,
        aggregation: str,
        scale: str,
        broken: Sequence[bool],
        rank: int,
        gather: Gather,
        log: Callable[[str, float], None],
    ) -> torch.Tensor:
        """Derive advantages per token, (B, `width`), from those of the outcome, (B,), and add each turn's reward and
        advantage to its message. All ranks must call this. `broken`: whether to ignore each completion's turns."""
        empty_scores = [[None for _ in turns] for turns in next(iter(self.scores.values()))]
        own_scores = [
            [empty_scores[index] if broken[index] else turns for index, turns in enumerate(self.scores[name])]
            for name in self.columns
        ]
        gathered = gather([own_scores])
        scores = [[turns for part in gathered for turns in part[index]] for index in range(len(own_scores))]
        rewards = credit.turn_rewards(scores, self.weights)
        for number in range(MAX_TURNS_CHARTED):
            if (average := mean([turns[number] for turns in rewards if number < len(turns)])) is not None:
                log(turn_reward(number + 1), average)
        count = len(completions)  # the same on all ranks
        turn_values = credit.turn_advantages(scores, self.weights, group, aggregation, scale)[rank * count :][:count]
        outcomes = outcome.tolist() if self.outcomes else [0.0] * count
        spans = [credit.spans(completion, len(tokens)) for completion, tokens in zip(completions, ids, strict=True)]
        for completion, value, turns, turn_rewards in zip(
            completions, outcomes, turn_values, credit.turn_rewards(own_scores, self.weights), strict=True
        ):
            credit.annotate(completion, turn_rewards, [value + self.coef * turn for turn in turns])
        tokens = credit.per_token(outcomes, turn_values, spans, self.coef, width)
        return torch.tensor(tokens, dtype=outcome.dtype, device=outcome.device)


def with_supplied_advantages(
    advantages: torch.Tensor, supplied: Sequence[Sequence[float] | None], width: int
) -> torch.Tensor:
    """Return the advantages, (B,) or (B, `width`), with those that an environment supplied per token in place of the
    computed ones. The result is (B, `width`) if any were supplied."""
    if all(values is None for values in supplied):
        return advantages
    per_token = advantages if advantages.dim() > 1 else advantages.unsqueeze(1).expand(-1, width).clone()
    for index, values in enumerate(supplied):
        if values is not None:
            row = [*values, *[0.0] * width][:width]
            per_token[index] = torch.tensor(row, dtype=per_token.dtype, device=per_token.device)
    return per_token
