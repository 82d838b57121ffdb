"""Permissions for parts that contain code. Operators may use code that an admin has saved, unchanged."""

import json
from collections.abc import Iterable
from typing import Any

from controlplane.catalogue.versioned.models import Version
from controlplane.catalogue.versioned.queries import existing_versions
from controlplane.platform.accounts.models import User


def refused(model: type[Version]) -> str:
    return f"Only an admin can add or change code. You can reuse code from a saved {model.kind.name} unchanged."


def may_use(model: type[Version], user: User, spec: Any) -> bool:
    """Allow a user to save and try a part, which both run its code. Its name and weight don't matter."""
    entry = model.kind.library.get(spec.function)
    return user.may_administer or entry is None or not entry.admin_only or is_saved(model, spec)


def is_saved(model: type[Version], spec: Any) -> bool:
    """Check whether a version of any item has this function with the same parameters: an admin saved it."""
    lists: Iterable[Any] = existing_versions(model).values_list(model.kind.parts, flat=True).iterator(chunk_size=200)
    parts = (part for parts in lists if isinstance(parts, list) for part in parts if isinstance(part, dict))
    same_function = (part for part in parts if part.get("function") == spec.function)

    def content(params: dict[str, Any]) -> str:
        return json.dumps(model.kind.full_params(spec.function, params), sort_keys=True)

    return content(spec.params) in (content(part.get("params") or {}) for part in same_function)
