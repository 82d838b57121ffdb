"""Excerpts of uploaded data that are safe to store and show: no control characters, no broken encoding."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

MAX_EXCERPT = 160
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_TEXT_LENGTHS = (2000, 400, 80, 20)
"""Lengths to which strings are cut, tried in turn until the row is small enough."""
_MAX_ROW_BYTES = 16 * 2**10


def visible(text: str) -> str:
    """Replace control and text direction characters, including line breaks, with U+FFFD."""
    return _CONTROL.sub("\ufffd", text)


def excerpt(raw: bytes, offset: int = 0) -> str:
    """Return the part of a line around the byte `offset`, with … at truncated ends."""
    start = max(0, offset - MAX_EXCERPT // 2)
    # A list's record may span several lines.
    lines = raw[start : start + MAX_EXCERPT].decode("utf-8", "replace").strip("\r\n").split("\n")
    text = " ".join(filter(None, map(str.strip, lines))) if len(lines) > 1 else lines[0]
    return ("…" if start else "") + visible(text) + ("…" if start + MAX_EXCERPT < len(raw.rstrip()) else "")


def short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten a row for pages to at most 16 KiB of JSON; if impossible, keep only its integers and add "too_large"."""
    for max_length in _TEXT_LENGTHS:
        shortened_row: dict[str, Any] = cut(row, max_length)
        if len(msgspec.json.encode(shortened_row)) <= _MAX_ROW_BYTES:
            return shortened_row
    return {name: value for name, value in row.items() if isinstance(value, int)} | {"too_large": True}


def cut(value: Any, max_length: int) -> Any:
    """Truncate strings in a value to `max_length` characters, and lists to as many items, keeping line breaks."""
    if isinstance(value, str):
        text = "\n".join(map(visible, value[:max_length].replace("\r\n", "\n").split("\n")))
        return text + ("…" if len(value) > max_length else "")
    if isinstance(value, Mapping):
        return {visible(name): cut(inner, max_length) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cut(inner, max_length) for inner in value[:max_length]]
    return value
