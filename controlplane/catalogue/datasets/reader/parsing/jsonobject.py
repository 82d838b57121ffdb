"""Rows in one JSON object: in a list inside it, as columns that are lists, or by key, as pandas and APIs write them.

The object is read whole, but only its structure is decoded to find the rows in a list, so that each row's problems are
reported at its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader.columns.column_names import MESSAGES, PROMPT_WORDS
from controlplane.catalogue.datasets.reader.columns.paths import SPEAKERS
from controlplane.catalogue.datasets.reader.parsing.jsonlist import members, value_end
from controlplane.catalogue.datasets.reader.problems import FileProblem

MAX_BYTES = 256 * 2**20
ROW_LISTS = (
    *("rows", "data", "examples", "items", "records", "instances", "samples", "entries", "questions", "problems"),
    *("tasks", "results", "dataset", "prompts", "conversations", "train"),
)
"""Names of lists of rows, most reliable first."""
SPLITS = frozenset(("train", "test", "validation", "valid", "val", "dev", "eval"))
API_ROW = frozenset(("row_idx", "row"))
"""Keys of an object that wraps a row in an answer of the Hugging Face hub's API."""
_MAX_LEVELS = 3
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class RowsInObject:
    """Where the rows are: in the list from the byte `start` to `end` or, if that is empty, decoded in `rows`. `note`
    says so on the page."""

    note: str
    start: int = 0
    end: int = 0
    rows: Sequence[Any] = ()


@dataclass(frozen=True)
class _Member:
    name: str
    start: int
    end: int
    first: bytes
    """First byte of the value and, in a list, of its first item."""


def find(content: bytes, start: int = 0, level: int = 1) -> RowsInObject | None:
    """Return where the rows of the object at `start` are, or None if it is a row itself. Raises FileProblem if it has
    several lists of rows, or if columns can't be decoded."""
    found = [_Member(name, at, end, _first_bytes(content, at, end)) for name, at, end in members(content, start)]
    by_name = {member.name: member for member in found}
    lists = [member for member in found if member.first[:1] == b"["]
    if {"columns", "data"} <= by_name.keys() and by_name["data"].first == b"[[":
        names, cells = (_decoded(content, by_name[name]) for name in ("columns", "data"))
        rows = [dict(zip(map(str, names), row, strict=False)) for row in cells]
        return RowsInObject("The rows are the lists in “data”, named by “columns”.", rows=rows)
    rows_in = [member for member in lists if member.first == b"[{" and not _are_turns(content, member)]
    if splits := [member.name for member in rows_in if member.name.lower() in SPLITS][1:] and [
        member.name for member in rows_in
    ]:
        names_text = " and ".join(f"“{name}”" for name in splits[:4])
        raise FileProblem(
            "other_format",
            f"The object has several lists of rows: {names_text}.",
            f"Upload each as a dataset of its own: `jq -c '.{splits[0]}[]' file` writes one of them as JSON Lines.",
        )
    if chosen := _row_list(content, found, rows_in):
        others = [member.name for member in found if member is not chosen]
        note = f"The rows are the list “{chosen.name}” of the object in the file."
        return RowsInObject(note + _left_out(others), chosen.start, chosen.end)
    if columns := _columns(content, found, lists):
        return columns
    objects = [member for member in found if member.first[:1] == b"{"]
    is_inner = len(objects) == 1 and (len(found) == 1 or objects[0].name.lower() in ROW_LISTS)
    return find(content, objects[0].start, level + 1) if is_inner and level < _MAX_LEVELS else None


def _row_list(content: bytes, found: Sequence[_Member], rows_in: Sequence[_Member]) -> _Member | None:
    """Return the list whose items are rows: by its name, as the only member, or because its items have a prompt and the
    object has none."""
    named = sorted(
        (found_list for found_list in rows_in if _rank(found_list.name) >= 0),
        key=lambda found_list: _rank(found_list.name),
    )
    if named or not rows_in:
        return named[0] if named else None
    has_prompt = any(_is_prompt(member.name) and member.first[:1] == b'"' for member in found)
    prompted = [member for member in rows_in if any(map(_is_prompt, _first_item(content, member)))]
    if len(found) == 1 or (len(prompted) == 1 and not has_prompt):
        return (prompted or rows_in)[0]
    return None


def _columns(content: bytes, found: Sequence[_Member], lists: Sequence[_Member]) -> RowsInObject | None:
    """Return rows from columns that are lists of one length or objects with row numbers as keys, or from rows by
    key."""
    if len(found) < 2 or not (len(lists) == len(found) or all(member.first[:1] == b"{" for member in found)):
        return None
    if any(_are_turns(content, member) for member in lists):
        return None
    values = {member.name: _decoded(content, member) for member in found}
    if lists:
        if len({len(value) for value in values.values()}) > 1 or len(next(iter(values.values()))) < 2:
            return None
        rows = [dict(zip(values, cells, strict=True)) for cells in zip(*values.values(), strict=True)]
        return RowsInObject("The file has a list per column; row by row they are combined.", rows=rows)
    first = next(iter(values.values()))
    if (
        first
        and all(key.isdecimal() for key in first)
        and all(value.keys() == first.keys() for value in values.values())
    ):
        rows = [{name: value[key] for name, value in values.items()} for key in first]
        return RowsInObject("The file has an object per column; row by row they are combined.", rows=rows)
    if not any(map(_is_prompt, first)):
        return None
    return RowsInObject(
        "The rows are the values of the object in the file; their names are in “key”.",
        rows=[{**value, **({} if "key" in value else {"key": name})} for name, value in values.items()],
    )


def unwrapped(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row inside an answer of the hub's API, or the row itself."""
    inner = row.get("row")
    return inner if isinstance(inner, dict) and row.keys() >= API_ROW else row


def _left_out(names: Sequence[str]) -> str:
    quoted = ", ".join(f"“{name[:40]}”" for name in names[:4])
    return f" What else it has isn't used: {quoted}{' …' if names[4:] else ''}." if names else ""


def _rank(name: str) -> int:
    return ROW_LISTS.index(name.lower()) if name.lower() in ROW_LISTS else -1


def _is_prompt(name: str) -> bool:
    return name.lower() in PROMPT_WORDS or name.lower() in MESSAGES


def _are_turns(content: bytes, member: _Member) -> bool:
    return member.first == b"[{" and any(key in _first_item(content, member) for key in SPEAKERS)


def _first_item(content: bytes, member: _Member) -> dict[str, Any]:
    start = content.index(b"{", member.start)
    try:
        item = _decode(content[start : value_end(content, start)])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return item if isinstance(item, dict) else {}


def _first_bytes(content: bytes, start: int, end: int) -> bytes:
    return b"".join(content[start : min(end, start + 4096)].split())[:2]


def _decoded(content: bytes, member: _Member) -> Any:
    try:
        return _decode(content[member.start : member.end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"“{member.name[:80]}” of the object in the file isn't valid JSON: {error}."
        raise FileProblem("other_format", message, "Write the file with a JSON library, one row per line.") from None
