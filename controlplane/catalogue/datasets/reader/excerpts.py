"""Excerpts of uploaded data that are safe to store and show: no control characters, no broken encoding."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

EXCERPT = 160
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_TEXTS = (2000, 400, 80, 20)
"""Characters of a text; the first length at which the row is small enough is used."""
_ROW_BYTES = 16 * 2**10


def visible(text: str) -> str:
    """Replace control and direction characters, including line breaks."""
    return _CONTROL.sub("\ufffd", text)


def excerpt(raw: bytes, around: int = 0) -> str:
    """Cut out the part of a line around the byte `around`, with … where it was cut."""
    start = max(0, around - EXCERPT // 2)
    # A list's record may span several lines.
    lines = raw[start : start + EXCERPT].decode("utf-8", "replace").strip("\r\n").split("\n")
    text = " ".join(filter(None, map(str.strip, lines))) if len(lines) > 1 else lines[0]
    return ("…" if start else "") + visible(text) + ("…" if start + EXCERPT < len(raw.rstrip()) else "")


def short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten a row for pages, to at most 16 KiB as JSON. If still too large, only its numbers and `"too_large"`."""
    for longest in _TEXTS:
        shortened: dict[str, Any] = cut(row, longest)
        if len(msgspec.json.encode(shortened)) <= _ROW_BYTES:
            return shortened
    return {name: value for name, value in row.items() if isinstance(value, int)} | {"too_large": True}


def cut(value: Any, longest: int) -> Any:
    """Cut texts to `longest` characters and lists to as many items; line breaks are kept."""
    if isinstance(value, str):
        text = "\n".join(map(visible, value[:longest].replace("\r\n", "\n").split("\n")))
        return text + ("…" if len(value) > longest else "")
    if isinstance(value, Mapping):
        return {visible(name): cut(inner, longest) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cut(inner, longest) for inner in value[:longest]]
    return value
