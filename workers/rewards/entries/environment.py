"""The reward that an episode's environment gives, which its messages contain."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.parameters import Params, is_finite, param
from workers.rewards.reward import Completion, Example, Reward

_EXAMPLE_TURNS = (
    {"role": "assistant", "content": "e2"},
    {"role": "user", "content": "A ship is hit.", "reward": 0.25},
    {"role": "assistant", "content": "e3"},
    {"role": "user", "content": "It sinks. You have won.", "reward": 1.0},
)


@dataclass(frozen=True)
class EnvironmentParams(Params):
    of: str = param(
        "sum",
        "Whether to use the sum of the environment's rewards or, if each is the value of a state, the last one.",
        choices=("sum", "last"),
    )


def environment_reward(completion: Completion, row: Mapping[str, Any], params: EnvironmentParams) -> float:
    """Return a number, the sum (or the last) of the environment's rewards in the episode, or in the turn if turns are
    scored separately; 0 if there are none. Environments choose their own scale, so choose the weight accordingly."""
    rewards = [value for message in completion.turns if (value := _reward_of(message)) is not None]
    if not rewards:
        return 0.0
    return math.fsum(rewards) if params.of == "sum" else rewards[-1]


def _reward_of(message: Mapping[str, Any]) -> float | None:
    """Return the reward of a result or an observation, or None if it has none. An assistant message's reward is the
    turn's own score, so it is ignored."""
    value = message.get("reward")
    if message.get("role") == "assistant" or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if is_finite(value) else None


REWARDS: tuple[Reward, ...] = (
    Reward(
        key="environment_reward",
        title="Environment reward",
        help="The reward that the environment gave in the episode.",
        params=EnvironmentParams,
        range=(0.0, None),
        whole=environment_reward,
        low="The environment gave no reward.",
        high="The environment's highest reward.",
        use="For games and environment servers, which know best what a move is worth. Tools give no rewards.",
        examples=(
            Example("e3", 1.25, turns=_EXAMPLE_TURNS, why="A quarter for the hit, 1 for the win."),
            Example("e3", 1.0, params={"of": "last"}, turns=_EXAMPLE_TURNS, why="The last reward of the episode."),
            Example("Hello.", 0.0, why="Nothing was played."),
        ),
        typical=(0.0, 1.0),
    ),
)
