"""Keys that occur twice in one JSON object: readers keep one of the two, so the text itself is searched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MOST = 20
"""Names that are reported for one row."""


def may_have_any(raw: bytes, row: Mapping[str, Any]) -> bool:
    """False where there can be none: the text has as many quotes as the row that was read of it needs.

    A key that was lost to another one leaves its quotes over.
    """
    quotes = raw.count(b'"')
    escaped = raw.count(b'\\"')
    if escaped:
        if b'\\\\"' in raw:  # a backslash at a text's end: this count can't tell it from an escaped quote
            return True
        quotes -= escaped
    return quotes != _quotes(row)


def found(raw: bytes) -> Iterator[tuple[str, int]]:
    """(name, column of its second place in the line or 0) of keys that an object of this text has twice."""
    names: dict[str, None] = {}

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen and len(names) < _MOST:
                names[name] = None
            seen.add(name)

    try:
        json.loads(raw, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return  # the first pass has reported its problem
    text = raw.decode("utf-8", "replace")
    for name in names:
        places = [match.start() for match in re.finditer(rf"(?<!\\){re.escape(json.dumps(name))}\s*:", text)]
        yield name, places[1] + 1 if len(places) > 1 else 0


def _quotes(value: Any) -> int:
    """Quotes around the keys and texts of what was read."""
    kind = type(value)
    if kind is dict:
        return 2 * len(value) + sum([2 if type(inner) is str else _quotes(inner) for inner in value.values()])
    if kind is list:
        return sum([2 if type(inner) is str else _quotes(inner) for inner in value])
    return 2 if kind is str else 0
