"""A stored version for pages: its components in the library's words, and their influence on the total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.rewards.balance import Balance, balance
from controlplane.rewards.models import RewardVersion
from workers.contract import ContractError, RewardSpec, from_dict
from workers.rewards import LIBRARY, Reward

LONG = 60
"""Longer or multi-line texts are shown separately."""


@dataclass(frozen=True)
class ComponentView:
    spec: RewardSpec
    reward: Reward | None
    """None: no longer in the library."""
    params: list[tuple[str, Any]]
    """Short parameters that differ from the defaults."""
    texts: list[tuple[str, str]]
    """Long ones: code, schemas, rubrics."""


def specs(version: RewardVersion) -> list[RewardSpec]:
    """The components that the contract can read."""
    readable = []
    for part in version.components:
        try:
            readable.append(from_dict(RewardSpec, part))
        except ContractError:
            continue
    return readable


def parts(version: RewardVersion) -> list[ComponentView]:
    return [_part(spec) for spec in specs(version)]


def balance_of(version: RewardVersion) -> Balance:
    return balance(specs(version), version.aggregation)


def _part(spec: RewardSpec) -> ComponentView:
    reward = LIBRARY.get(spec.function)
    defaults = reward.defaults() if reward else {}
    changed = {name: value for name, value in spec.params.items() if name not in defaults or defaults[name] != value}
    texts = {name: value for name, value in changed.items() if is_long(value)}
    return ComponentView(
        spec, reward, [(name, value) for name, value in changed.items() if name not in texts], list(texts.items())
    )


def is_long(value: Any) -> bool:
    return isinstance(value, str) and (len(value) > LONG or "\n" in value)
