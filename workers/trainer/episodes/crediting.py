"""The components of a run that score each turn: what they gave a batch, and the advantages that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workers.contract.run.episodes import MOST_TURNS_CHARTED, EpisodeSpec, turn_reward
from workers.contract.run.spec import RunSpec
from workers.rewards.advantages import mean
from workers.trainer.episodes import credit

Gather = Callable[[list[Any]], list[Any]]
"""The lists of all ranks in one, in the order of the ranks."""


@dataclass
class TurnCredit:
    columns: Mapping[str, int]
    """The run's components that score each turn: the column of each in the rewards that TRL aggregates."""
    weights: Sequence[float]
    outcomes: Sequence[int]
    """The columns of the others, which count for the outcome; none: turns are all there is."""
    coef: float
    scores: dict[str, list[list[float | None]]] = field(default_factory=dict)
    """What each gave the last batch on this rank: scores[completion][turn]. Written by the reward functions."""

    @classmethod
    def of(cls, run: RunSpec) -> TurnCredit | None:
        """None in a run whose components all score whole completions."""
        columns = {reward.name: place for place, reward in enumerate(run.rewards) if reward.per_turn}
        if not columns:
            return None
        counting = any(reward.weight for reward in run.rewards if not reward.per_turn)
        return cls(
            columns,
            [reward.weight for reward in run.rewards if reward.per_turn],
            [place for place, reward in enumerate(run.rewards) if not reward.per_turn] if counting else [],
            (run.episodes or EpisodeSpec()).turn_advantage_coef,
        )

    def leave_out(self, rewards: torch.Tensor) -> None:
        """A completion without an outcome has none, whatever its turns have: with a weight of 0 TRL would take the
        turns' scores for an outcome of 0."""
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
        """(B, `width`), from the outcome's (B,). Writes each turn's reward and advantage into its message. `broken`:
        completions whose turns don't count. To be called by all ranks."""
        blank = [[None for _ in of_turns] for of_turns in next(iter(self.scores.values()))]
        own = [
            [blank[place] if broken[place] else of_turns for place, of_turns in enumerate(self.scores[name])]
            for name in self.columns
        ]
        told = gather([own])
        everyones = [[of_turns for one in told for of_turns in one[place]] for place in range(len(own))]
        start = rank * len(completions)  # all ranks have equally many
        self._log(credit.turn_rewards(everyones, self.weights), log)
        made = credit.turn_advantages(everyones, self.weights, group, aggregation, scale)[start:][: len(completions)]
        outcomes = outcome.tolist() if self.outcomes else [0.0] * len(completions)
        at = [credit.spans(one, len(tokens)) for one, tokens in zip(completions, ids, strict=True)]
        for completion, of_outcome, turns, rewards in zip(
            completions, outcomes, made, credit.turn_rewards(own, self.weights), strict=True
        ):
            credit.note(completion, rewards, [of_outcome + self.coef * turn for turn in turns])
        tokens = credit.per_token(outcomes, made, at, self.coef, width)
        return torch.tensor(tokens, dtype=outcome.dtype, device=outcome.device)

    def _log(self, rewards: Sequence[Sequence[float | None]], log: Callable[[str, float], None]) -> None:
        for number in range(MOST_TURNS_CHARTED):
            average = mean([of_turns[number] for of_turns in rewards if number < len(of_turns)])
            if average is not None:
                log(turn_reward(number + 1), average)


def with_supplied(advantages: torch.Tensor, supplied: Sequence[Sequence[float] | None], width: int) -> torch.Tensor:
    """Replace the advantages of episodes whose environment supplied its own, one per token.

    `advantages`: (B,) or (B, `width`); (B, `width`) is returned if any were supplied.
    """
    if all(values is None for values in supplied):
        return advantages
    per_token = advantages if advantages.dim() > 1 else advantages.unsqueeze(1).expand(-1, width).clone()
    for place, values in enumerate(supplied):
        if values is not None:
            row = [*values, *[0.0] * width][:width]
            per_token[place] = torch.tensor(row, dtype=per_token.dtype, device=per_token.device)
    return per_token
