"""A stored version for pages: its components with the library's words, and how far each can move the total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.rewards.balance import Balance, balance
from controlplane.rewards.models import RewardVersion
from workers.contract import ContractError, RewardSpec, from_dict
from workers.rewards import LIBRARY, Reward

LONG = 60
"""A text of more characters, or of several lines, is shown apart."""


@dataclass(frozen=True)
class ComponentView:
    spec: RewardSpec
    reward: Reward | None
    """None: the library doesn't have it any more."""
    params: list[tuple[str, Any]]
    """Those that differ from the defaults, as far as they are short."""
    texts: list[tuple[str, str]]
    """The long ones: code, schemas, rubrics."""


def specs(version: RewardVersion) -> list[RewardSpec]:
    """Those that the contract can read."""
    found = []
    for part in version.components:
        try:
            found.append(from_dict(RewardSpec, part))
        except ContractError:
            continue
    return found


def parts(version: RewardVersion) -> list[ComponentView]:
    return [_part(spec) for spec in specs(version)]


def balance_of(version: RewardVersion) -> Balance:
    return balance(specs(version), version.aggregation)


def _part(spec: RewardSpec) -> ComponentView:
    reward = LIBRARY.get(spec.function)
    defaults = reward.defaults() if reward else {}
    own = {name: value for name, value in spec.params.items() if name not in defaults or defaults[name] != value}
    texts = {name: value for name, value in own.items() if _is_long(value)}
    return ComponentView(
        spec, reward, [(name, value) for name, value in own.items() if name not in texts], list(texts.items())
    )


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and (len(value) > LONG or "\n" in value)
