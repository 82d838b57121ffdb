"""The catalogue of causes: catalogue.toml, read and checked once."""

from __future__ import annotations

import functools
import re
import string
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("catalogue.toml")


class Confidence(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        """0 for certain."""
        return list(Confidence).index(self)

    def lowered(self, steps: int = 1) -> Confidence:
        return list(Confidence)[min(self.rank + steps, 2)]


class BadCatalogue(ValueError):
    """An entry that can't be used; the message names it."""


@dataclass(frozen=True)
class Change:
    """What to change in a run's settings."""

    field: str
    """Of the New run form."""
    how: str
    """halve | double | set | at_most | profile; `profile`: another hardware profile has to be chosen."""
    why: str
    value: str = ""
    """Of `set` and `at_most`; may name a group of the pattern in braces."""


@dataclass(frozen=True)
class Entry:
    """One cause of failure."""

    id: str
    title: str
    """A few words, as a heading."""
    cause: str
    """One or two sentences; may name groups of the pattern in braces."""
    fix: str
    patterns: tuple[re.Pattern[str], ...] = ()
    """Of a line, without its prefixes (time, rank, level)."""
    where: tuple[str, ...] = ()
    """The processes that write it, `vllm` for every server; () for any."""
    when: str = ""
    """start | training; "" for any time."""
    near: tuple[re.Pattern[str], ...] = ()
    """One of them is in the lines around the match, such as a frame of the traceback."""
    confidence: Confidence = Confidence.CERTAIN
    """The most that a match is worth."""
    follows: tuple[str, ...] = ()
    """Entries whose consequence this is: with one of them it is not shown. `*`: any other entry."""
    reasons: tuple[str, ...] = ()
    """End reasons of a run that are this cause by themselves, or with one of `exits` if there are any."""
    exits: tuple[int, ...] = ()
    """Exit codes that point to it, without a line or reason; only if nothing else matches."""
    events: tuple[str, ...] = ()
    """Kinds of events in the outbox that are this cause; their data must match `patterns` if there are any."""
    figures: bool = False
    """Matched in the trainer's lines of figures, too."""
    anywhere: bool = False
    """Certain on any line; otherwise only where an error is raised or logged."""
    changes: tuple[Change, ...] = ()

    def words(self, text: str, values: dict[str, str]) -> str:
        return _Words().vformat(text, (), values)


class _Words(string.Formatter):
    """Formats with what a match has found; a group that took no part reads as an ellipsis."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return kwargs.get(str(key)) or "…"


@dataclass(frozen=True)
class Catalogue:
    entries: tuple[Entry, ...]
    noise: tuple[re.Pattern[str], ...] = ()
    """Lines that speak of errors and report none."""
    by_id: dict[str, Entry] = field(default_factory=dict)


@functools.cache
def catalogue() -> Catalogue:
    """Raises BadCatalogue."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    made = tuple(_entry(row) for row in table["entry"])
    by_id = {entry.id: entry for entry in made}
    if len(by_id) < len(made):
        raise BadCatalogue("two entries have the same id")
    for entry in made:
        unknown = set(entry.follows) - set(by_id) - {"*"}
        if unknown:
            raise BadCatalogue(f"{entry.id} follows {', '.join(sorted(unknown))}, which are no entries")
    return Catalogue(made, tuple(re.compile(pattern) for pattern in table["noise"]), by_id)


def entries() -> dict[str, Entry]:
    """Every entry by its id, in the catalogue's order."""
    return catalogue().by_id


def _entry(row: dict[str, Any]) -> Entry:
    values = dict(row)
    name = values.get("id", "an entry without an id")
    try:
        for key in ("patterns", "near"):
            values[key] = tuple(re.compile(pattern) for pattern in values.get(key, ()))
        for key in ("where", "follows", "reasons", "exits", "events"):
            values[key] = tuple(values.get(key, ()))
        values["confidence"] = Confidence(values.get("confidence", Confidence.CERTAIN))
        values["changes"] = tuple(Change(**change) for change in values.get("changes", ()))
        return Entry(**values)
    except (TypeError, ValueError, re.error) as error:
        raise BadCatalogue(f"{name}: {error}") from error
