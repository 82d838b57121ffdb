"""Look-ups that the Preflight panel needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import template

register = template.Library()


@register.filter
def at(mapping: Mapping[str, Any], key: str) -> Any:
    """The value under a key that is itself a variable."""
    return mapping.get(key, "")


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value)
