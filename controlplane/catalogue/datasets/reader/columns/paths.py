"""Values inside columns, by dotted paths such as `reward_model.ground_truth` and `messages.-1.ground_truth.value`.

A path goes into objects, into JSON objects in strings, into the only item of a list, and into any item by its index.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

MAX_LEVELS = 4
"""Maximum number of names in a path that `leaves` yields."""
SPEAKERS = ("role", "from")
"""Keys that make an object a chat message."""
TEXTS_OF_MESSAGES = frozenset((*SPEAKERS, "content", "value", "text", "name", "tool_calls", "tool_call_id", "weight"))
_INDEX = re.compile(r"-?\d{1,3}")
_decode = msgspec.json.Decoder().decode


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column or, for a dotted path, of a field inside one, or None if there is none."""
    value = row.get(name)
    return _inside(row, name) if value is None and "." in name and name not in row else value


def leaves(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every string, number, boolean and list of them inside the row's columns."""
    for name, value in row.items():
        if isinstance(value, dict | list) or (isinstance(value, str) and value[:1] in ("{", "[")):
            yield from _leaves(name, value, 1)


def _leaves(path: str, value: Any, level: int) -> Iterator[tuple[str, Any]]:
    value = _opened(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        is_chat = any(key in value[-1] for key in SPEAKERS)
        if is_chat:
            path = f"{path}.-1"
            value = {key: inner for key, inner in value[-1].items() if key not in TEXTS_OF_MESSAGES}
        else:
            value = value[0] if len(value) == 1 else None
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if _is_leaf(inner):
            yield f"{path}.{key}", inner
        if level < MAX_LEVELS and not isinstance(inner, bool | int | float):
            yield from _leaves(f"{path}.{key}", inner, level + 1)


def _is_leaf(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str | int | float) for item in value)
    return isinstance(value, str | int | float)


def _inside(value: Any, path: str) -> Any:
    value = _opened(value)
    head, _, rest = path.partition(".")
    if isinstance(value, list):
        if _INDEX.fullmatch(head):
            item = value[int(head)] if -len(value) <= int(head) < len(value) else None
            return _inside(item, rest) if rest else item
        value = _opened(value[0]) if len(value) == 1 else None
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    return _inside(value[head], rest) if rest and head in value else None


def _opened(value: Any) -> Any:
    """Return the object or list in a JSON string; other values as they are."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return _decode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return value
