"""Search for keys that occur twice in a JSON object. Parsers keep only one of them, so the text is searched."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_NAMES = 20
"""Maximum number of names to report per row."""


def may_have_any(raw: bytes, row: Mapping[str, Any]) -> bool:
    """Return whether a row may have repeated keys, judged by quotes that the parsed row doesn't account for."""
    quotes = raw.count(b'"')
    escaped = raw.count(b'\\"')
    if escaped:
        if b'\\\\"' in raw:  # a backslash at a string's end, which looks like an escaped quote here
            return True
        quotes -= escaped
    return quotes != _quotes(row)


def repeated(raw: bytes) -> Iterator[tuple[str, int]]:
    """Yield (name, column of its second occurrence in the line, or 0) for each key that is repeated in an object."""
    repeated_names: dict[str, None] = {}

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen_names: set[str] = set()
        for name, _ in pairs:
            if name in seen_names and len(repeated_names) < _MAX_NAMES:
                repeated_names[name] = None
            seen_names.add(name)

    try:
        json.loads(raw, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return  # the first pass has reported its problem
    line_text = raw.decode("utf-8", "replace")
    for name in repeated_names:
        columns = [match.start() + 1 for match in re.finditer(rf"(?<!\\){re.escape(json.dumps(name))}\s*:", line_text)]
        yield name, columns[1] if len(columns) > 1 else 0


def _quotes(value: Any) -> int:
    kind = type(value)
    if kind is dict:
        return 2 * len(value) + sum([2 if type(inner) is str else _quotes(inner) for inner in value.values()])
    if kind is list:
        return sum([2 if type(inner) is str else _quotes(inner) for inner in value])
    return 2 if kind is str else 0
