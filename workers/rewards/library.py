"""Every reward there is, by key. A run's spec names these keys: never rename one, and never change what one means."""

from __future__ import annotations

from workers.rewards import (
    answer,
    choice,
    code,
    custom,
    dialogue,
    judge,
    language,
    maths,
    model,
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
    code.REWARDS,
    text.REWARDS,
    language.REWARDS,
    dialogue.REWARDS,
    model.REWARDS,
    judge.REWARDS,
    trl_builtin.REWARDS,
    custom.REWARDS,
)
"""The tuple `REWARDS` of each module, in the order in which pages list them."""

LIBRARY: dict[str, Reward] = {reward.key: reward for rewards in _MODULES for reward in rewards}
