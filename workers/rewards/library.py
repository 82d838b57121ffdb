"""All rewards, by key. Specs refer to these keys: never rename one or change its meaning."""

from workers.rewards.entries import (
    answer,
    choice,
    code,
    custom,
    dialogue,
    environment,
    judge,
    language,
    maths,
    model,
    ranking,
    reasoning_gym,
    same_output,
    structured,
    tags,
    text,
    trl_builtin,
)
from workers.rewards.reward import Reward

_MODULES: tuple[tuple[Reward, ...], ...] = (
    tags.REWARDS,
    structured.REWARDS,
    answer.REWARDS,
    maths.REWARDS,
    choice.REWARDS,
    reasoning_gym.REWARDS,
    code.REWARDS,
    same_output.REWARDS,
    text.REWARDS,
    language.REWARDS,
    dialogue.REWARDS,
    environment.REWARDS,
    model.REWARDS,
    judge.REWARDS,
    ranking.REWARDS,
    trl_builtin.REWARDS,
    custom.REWARDS,
)
"""Each module's `REWARDS`, in the order of the pages."""

LIBRARY: dict[str, Reward] = {reward.key: reward for rewards in _MODULES for reward in rewards}
