"""Permissions for components. Operators may use code that an admin has saved, unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from controlplane.accounts.models import User
from controlplane.rewards.models import RewardVersion
from workers.contract import RewardSpec
from workers.rewards import LIBRARY

REFUSED = "Only an admin may add or change code. You may reuse code from a saved config unchanged."


def may_use(user: User, spec: RewardSpec) -> bool:
    """Whether the user may save and try a component: both run it. Name and weight don't matter."""
    return user.may_administer or not is_admins(spec) or is_saved(spec)


def is_admins(spec: RewardSpec) -> bool:
    reward = LIBRARY.get(spec.function)
    return reward is not None and reward.admin_only


def is_saved(spec: RewardSpec) -> bool:
    """Whether a version of any config has this function with the same parameters: an admin saved it."""
    return _content(spec.function, spec.params) in _saved(spec.function)


def _saved(function: str) -> set[str]:
    components_lists: Iterable[Any] = RewardVersion.objects.values_list("components", flat=True).iterator(
        chunk_size=200
    )
    parts = (part for components in components_lists if isinstance(components, list) for part in components)
    return {
        _content(function, part.get("params") or {})
        for part in parts
        if isinstance(part, dict) and part.get("function") == function
    }


def _content(function: str, params: dict[str, Any]) -> str:
    """The function with all parameters; missing ones are defaults."""
    reward = LIBRARY.get(function)
    return json.dumps((reward.defaults() if reward else {}) | params, sort_keys=True)
