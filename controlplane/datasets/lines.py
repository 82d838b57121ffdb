"""Reads a file of unknown content line by line: one JSON object a line, or a problem that a person can act on.

Runs in the checking child only. Nothing here trusts the file: lines have a greatest length, values a greatest depth,
and every excerpt is cut and cleaned before it goes anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import msgspec

LONGEST_LINE = 8 * 2**20
DEEPEST = 64
LARGEST_INT = 2**63
LONGEST_NAME = 200
EXCERPT = 160

BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"PK\x03\x04", "a ZIP archive (Excel files are such archives too)"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"SQLite format", "an SQLite database"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x7fELF", "a program"),
)


@dataclass(frozen=True)
class Problem:
    """Something wrong with one line (line 0: with the file as a whole)."""

    line: int
    kind: str
    message: str
    excerpt: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class FileProblem(Exception):
    """The file is no JSON Lines at all; looking at its lines would only repeat that."""


def refuse_other_formats(head: bytes) -> None:
    """Raises FileProblem when the first bytes are those of another format."""
    for magic, what in _MAGIC:
        if head.startswith(magic):
            raise FileProblem(f"This is {what}, not JSON Lines. Export the rows as JSON Lines and upload that.")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in head[:2]:
        raise FileProblem("The text is encoded as UTF-16 or UTF-32. Save the file as UTF-8 and upload it again.")
    text = head.removeprefix(BOM).lstrip()
    if text.startswith(b"["):
        raise FileProblem(
            "The file is one JSON list. JSON Lines has one object a line and no brackets around them; "
            "`jq -c '.[]' file.json > file.jsonl` turns one into the other."
        )
    first = text.split(b"\n", 1)[0].strip()
    if first and first[:1] not in b'{"' and (b"," in first or b"\t" in first):
        raise FileProblem("The first line looks like a table header (CSV or TSV), not like a JSON object.")


def rows(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any] | Problem | None]]:
    """(line number, row) for each line of the file; a Problem for a bad one, None for a blank one."""
    number = 0
    while raw := file.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(BOM)
        if len(raw) > LONGEST_LINE and not raw.endswith(b"\n"):
            _skip_line(file)
            message = f"The line is longer than {LONGEST_LINE // 2**20} MiB."
            yield number, Problem(number, "too long", message, excerpt(raw))
        elif not raw.strip():
            yield number, None
        else:
            yield number, _row(number, raw)


def excerpt(raw: bytes, around: int = 0) -> str:
    """A short piece of a line, safe to store and to show: no control characters, no broken encoding."""
    start = max(0, around - EXCERPT // 2)
    text = raw[start : start + EXCERPT].decode("utf-8", "replace").strip("\r\n")
    return ("…" if start else "") + visible(text) + ("…" if start + EXCERPT < len(raw.rstrip()) else "")


def visible(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)


def _skip_line(file: BinaryIO) -> None:
    while (piece := file.readline(2**20)) and not piece.endswith(b"\n"):
        pass


def _row(number: int, raw: bytes) -> dict[str, Any] | Problem:
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _diagnosed(number, raw, error)
    if not isinstance(value, dict):
        found = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}.get(type(value), "a number")
        return Problem(
            number, "not an object", f"The line is {found}; each line has to be an object, {{…}}.", excerpt(raw)
        )
    if not value:
        return Problem(number, "empty object", "The object has no fields.", excerpt(raw))
    return _contents_problem(number, raw, value) or value


def _contents_problem(number: int, raw: bytes, value: dict[str, Any]) -> Problem | None:
    """What the decoder lets through and the trainer can't use."""
    try:
        keys = _walk(value, DEEPEST)
    except _TooDeep:
        return _nested(number, raw)
    except _TooLarge:
        return Problem(number, "number", "An integer doesn't fit into 64 bits. Write it as a text.", excerpt(raw))
    if b"\\u0000" in raw and _has_nul(value):
        at = raw.find(b"\\u0000")
        return Problem(number, "NUL character", "A text contains the NUL character (\\u0000).", excerpt(raw, at))
    if any(len(name) > LONGEST_NAME for name in value):
        return Problem(number, "field name", f"A field's name is longer than {LONGEST_NAME} characters.", excerpt(raw))
    # Only a colon too many can be a second field of one name; texts with colons take the slow look.
    if raw.count(b":") > keys and (twice := _field_given_twice(raw)) is not None:
        return Problem(number, "duplicate field", f"The field “{visible(twice)[:60]}” is there twice.", excerpt(raw))
    return None


class _TooDeep(Exception):
    pass


class _TooLarge(Exception):
    pass


def _walk(value: Any, levels: int) -> int:
    """How many object fields `value` has at all levels."""
    if levels == 0:
        raise _TooDeep
    if isinstance(value, dict):
        count = len(value)
        for inner in value.values():
            if isinstance(inner, dict | list | int):
                count += _walk(inner, levels - 1)
        return count
    if isinstance(value, list):
        return sum(_walk(inner, levels - 1) for inner in value if isinstance(inner, dict | list | int))
    if not -LARGEST_INT <= value < LARGEST_INT:
        raise _TooLarge
    return 0


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\x00" in name or _has_nul(inner) for name, inner in value.items())
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\x00" in value


def _field_given_twice(raw: bytes) -> str | None:
    twice: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice.append(next(name for i, name in enumerate(names) if name in names[:i]))
        return {}

    json.loads(raw, object_pairs_hook=look)
    return twice[0] if twice else None


def _nested(number: int, raw: bytes) -> Problem:
    return Problem(number, "nesting", f"Values are nested deeper than {DEEPEST} levels.", excerpt(raw))


def _diagnosed(number: int, raw: bytes, error: Exception) -> Problem:
    if isinstance(error, UnicodeDecodeError):
        return _encoding(number, raw)
    if isinstance(error, RecursionError):
        return _nested(number, raw)
    if isinstance(error, msgspec.ValidationError):
        return Problem(number, "number", "A number is too large to be represented.", excerpt(raw))
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _encoding(number, raw)
    if found := _LONE_SURROGATE.search(raw):
        message = "Half of a surrogate pair: this escape stands for no character."
        return Problem(number, "broken character", message, excerpt(raw, found.start()))
    return _malformed(number, raw, str(error))


def _encoding(number: int, raw: bytes) -> Problem:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        message = f"Byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8. Save the file as UTF-8."
        return Problem(number, "encoding", message, excerpt(raw, error.start))
    return Problem(number, "encoding", "A text is not valid UTF-8.", excerpt(raw))


def _malformed(number: int, raw: bytes, error: str) -> Problem:
    position = re.search(r"byte (\d+)", error)
    at = int(position[1]) if position else len(raw)
    rest = raw[at:].lstrip(b"-")
    if rest.startswith(b"\x00"):
        return Problem(number, "NUL character", f"There is a NUL byte at position {at + 1}.", excerpt(raw, at))
    if rest.startswith((b"NaN", b"Infinity")) or raw[max(0, at - 1) :].startswith((b"NaN", b"-Inf")):
        message = "NaN and Infinity are not JSON. Use null, or leave the field out."
        return Problem(number, "not a number", message, excerpt(raw, at))
    if "truncated" in error:
        ends = "The file ends in the middle of this line." if not raw.endswith(b"\n") else "The JSON is not closed."
        return Problem(number, "incomplete", ends, excerpt(raw, len(raw)))
    if "trailing" in error:
        message = f"Something follows the object at position {at + 1}. One object a line."
        return Problem(number, "not JSON", message, excerpt(raw, at))
    hint = " Names and texts take double quotes." if raw.lstrip()[1:2] == b"'" or rest[:1] == b"'" else ""
    return Problem(number, "not JSON", f"Not valid JSON at position {at + 1}.{hint}", excerpt(raw, at))
