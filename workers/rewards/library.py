"""All rewards by key. Specs refer to these keys, so never rename one or change its meaning."""

from dataclasses import replace
from types import ModuleType

from workers.rewards.entries import (
    answer,
    choice,
    code,
    custom,
    dialogue,
    environment,
    input_output,
    judge,
    language,
    maths,
    model,
    ranking,
    reasoning_gym,
    same_output,
    same_returns,
    structured,
    tags,
    text,
    trl_builtin,
)
from workers.rewards.reward import Reward, RewardGroup

SECTIONS: dict[RewardGroup, tuple[ModuleType, ...]] = {
    RewardGroup.FORMAT: (tags, structured),
    RewardGroup.CORRECTNESS: (answer, maths, choice, reasoning_gym),
    RewardGroup.CODE: (code, input_output, same_output, same_returns),
    RewardGroup.SHAPE: (text, language),
    RewardGroup.TOOLS: (dialogue, environment),
    RewardGroup.MODEL: (model, judge, ranking),
    RewardGroup.TRL: (trl_builtin,),
    RewardGroup.CUSTOM: (custom,),
}

LIBRARY: dict[str, Reward] = {
    reward.key: replace(reward, group=group)
    for group, modules in SECTIONS.items()
    for module in modules
    for reward in module.REWARDS
}
