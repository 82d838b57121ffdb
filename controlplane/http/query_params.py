"""What a request's query string asks for, read so that nonsense counts as not said."""

from __future__ import annotations

from urllib.parse import unquote

from django.http import HttpRequest


def whole(request: HttpRequest, name: str, default: int, lowest: int, highest: int) -> int:
    """A whole number of the query string; anything else counts as not said."""
    try:
        return max(lowest, min(highest, int(request.GET[name])))
    except (KeyError, ValueError):
        return default


def listed(text: str) -> list[str]:
    """A list in one value, as urlstate.js writes it: a comma or a percent sign within a member is escaped."""
    return list(dict.fromkeys(unquote(part) for part in text.split(",") if part))
