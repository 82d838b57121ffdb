"""Query parameters, parsed leniently: invalid values are ignored."""

from __future__ import annotations

from urllib.parse import unquote

from django.http import HttpRequest


def whole(request: HttpRequest, name: str, default: int, lowest: int, highest: int) -> int:
    """Return the parameter as a whole number, clamped to the limits; the default if it is none."""
    try:
        return max(lowest, min(highest, int(request.GET[name])))
    except (KeyError, ValueError):
        return default


def listed(text: str) -> list[str]:
    """Return the members of a list in one value, as written by urlstate.js: commas and percent signs are escaped."""
    return list(dict.fromkeys(unquote(part) for part in text.split(",") if part))
