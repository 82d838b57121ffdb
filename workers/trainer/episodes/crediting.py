"""The components of a run that score each turn: their scores of a batch, and the advantages from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workers.contract.run.episodes import MAX_TURNS_CHARTED, EpisodeSpec, turn_reward
from workers.contract.run.spec import RunSpec
from workers.rewards.advantages import mean
from workers.trainer.episodes import credit

Gather = Callable[[list[Any]], list[Any]]
"""Concatenates the lists of all ranks, in the ranks' order."""


@dataclass
class TurnCredit:
    """A converter of turns' scores into advantages per token."""

    columns: Mapping[str, int]
    """Component that scores each turn -> its column in the rewards that TRL aggregates."""
    weights: Sequence[float]
    outcomes: Sequence[int]
    """The columns of the other components, which form the outcome; empty: only turns count."""
    coef: float
    scores: dict[str, list[list[float | None]]] = field(default_factory=dict)
    """Component -> scores[completion][turn] of this rank's last batch; written by the reward functions."""

    @classmethod
    def of(cls, run: RunSpec) -> "TurnCredit | None":
        """Read the run's components; None if all score whole completions."""
        columns = {reward.name: column for column, reward in enumerate(run.rewards) if reward.per_turn}
        if not columns:
            return None
        counting = any(reward.weight for reward in run.rewards if not reward.per_turn)
        return cls(
            columns,
            [reward.weight for reward in run.rewards if reward.per_turn],
            [column for column, reward in enumerate(run.rewards) if not reward.per_turn] if counting else [],
            (run.episodes or EpisodeSpec()).turn_advantage_coef,
        )

    def leave_out(self, rewards: torch.Tensor) -> None:
        """Remove the turns' scores of completions without an outcome: TRL would take them for an outcome of 0."""
        if self.outcomes:
            without = rewards[:, list(self.outcomes)].isnan().all(dim=1)
            for column in self.columns.values():
                rewards[without, column] = torch.nan

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
        """Compute advantages per token, (B, `width`), from the outcome's, (B,). All ranks must call this.

        Writes each turn's reward and advantage into its message. `broken`: completions whose turns don't count.
        """
        blank = [[None for _ in turns] for turns in next(iter(self.scores.values()))]
        own = [
            [blank[index] if broken[index] else turns for index, turns in enumerate(self.scores[name])]
            for name in self.columns
        ]
        gathered = gather([own])
        scores = [[turns for of_rank in gathered for turns in of_rank[index]] for index in range(len(own))]
        rewards = credit.turn_rewards(scores, self.weights)
        for number in range(MAX_TURNS_CHARTED):
            if (average := mean([turns[number] for turns in rewards if number < len(turns)])) is not None:
                log(turn_reward(number + 1), average)
        count = len(completions)  # the same on all ranks
        turn_values = credit.turn_advantages(scores, self.weights, group, aggregation, scale)[rank * count :][:count]
        outcomes = outcome.tolist() if self.outcomes else [0.0] * count
        spans = [credit.spans(completion, len(tokens)) for completion, tokens in zip(completions, ids, strict=True)]
        for completion, value, turns, turn_rewards in zip(
            completions, outcomes, turn_values, credit.turn_rewards(own, self.weights), strict=True
        ):
            credit.note(completion, turn_rewards, [value + self.coef * turn for turn in turns])
        tokens = credit.per_token(outcomes, turn_values, spans, self.coef, width)
        return torch.tensor(tokens, dtype=outcome.dtype, device=outcome.device)


def with_supplied(advantages: torch.Tensor, supplied: Sequence[Sequence[float] | None], width: int) -> torch.Tensor:
    """Replace the advantages of episodes whose environment supplied its own, one per token.

    `advantages`: (B,) or (B, `width`). Returns (B, `width`) if any were supplied.
    """
    if all(values is None for values in supplied):
        return advantages
    per_token = advantages if advantages.dim() > 1 else advantages.unsqueeze(1).expand(-1, width).clone()
    for index, values in enumerate(supplied):
        if values is not None:
            row = [*values, *[0.0] * width][:width]
            per_token[index] = torch.tensor(row, dtype=per_token.dtype, device=per_token.device)
    return per_token
