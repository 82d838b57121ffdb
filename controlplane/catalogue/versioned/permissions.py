"""Permissions for parts that hold code. Operators may use code that an admin has saved, unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from controlplane.catalogue.versioned.models import Version
from controlplane.catalogue.versioned.queries import kept
from controlplane.platform.accounts.models import User


def refused(model: type[Version]) -> str:
    return f"Only an admin may add or change code. You may reuse code from a saved {model.kind.name} unchanged."


def may_use(model: type[Version], user: User, spec: Any) -> bool:
    """True if the user may save and try a part: both run it. Its name doesn't matter, nor does a weight."""
    entry = model.kind.library.get(spec.function)
    return user.may_administer or entry is None or not entry.admin_only or is_saved(model, spec)


def is_saved(model: type[Version], spec: Any) -> bool:
    """True if a version of any item has this function with the same parameters: an admin saved it."""
    lists: Iterable[Any] = kept(model).values_list(model.kind.parts, flat=True).iterator(chunk_size=200)
    parts = (part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict))
    wanted = _content(model, spec.function, spec.params)
    return any(
        _content(model, spec.function, part.get("params") or {}) == wanted
        for part in parts
        if part.get("function") == spec.function
    )


def _content(model: type[Version], function: str, params: dict[str, Any]) -> str:
    return json.dumps(model.kind.full_params(function, params), sort_keys=True)
