"""Permissions for parts. Operators may use code that an admin has saved, unchanged."""

from __future__ import annotations

import json
from typing import Any

from controlplane.accounts.models import User
from controlplane.environments.models import EnvironmentVersion
from workers.contract.episodes import PartSpec
from workers.environments import LIBRARY

REFUSED = "Only an admin may add or change code. You may reuse code from a saved environment unchanged."


def may_use(user: User, spec: PartSpec) -> bool:
    """Whether the user may save and try a part: both run it. Its name doesn't matter."""
    entry = LIBRARY.get(spec.function)
    return user.may_administer or entry is None or not entry.admin_only or is_saved(spec)


def is_saved(spec: PartSpec) -> bool:
    """Whether a version of any environment has this function with the same parameters: an admin saved it."""
    lists = EnvironmentVersion.objects.values_list("parts", flat=True).iterator(chunk_size=200)
    parts = (part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict))
    wanted = _content(spec.function, spec.params)
    return any(
        _content(spec.function, part.get("params") or {}) == wanted
        for part in parts
        if part.get("function") == spec.function
    )


def _content(function: str, params: dict[str, Any]) -> str:
    """The function with all parameters; missing ones are defaults."""
    entry = LIBRARY.get(function)
    return json.dumps((entry.defaults() if entry else {}) | params, sort_keys=True)
