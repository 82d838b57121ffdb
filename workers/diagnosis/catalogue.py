"""The catalogue of causes: catalogue.toml, read and checked once."""

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
    """The confidence of a diagnosis."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        """The position in the order of confidence; 0 for certain."""
        return list(Confidence).index(self)

    def lowered(self, steps: int = 1) -> "Confidence":
        return list(Confidence)[min(self.rank + steps, 2)]


class BadCatalogue(ValueError):
    """An entry is invalid; the message names it."""


@dataclass(frozen=True)
class Change:
    """A change of a run's settings that fixes a cause."""

    field: str
    """A field of the New run form."""
    how: str
    """halve | double | set | at_most | profile; `profile`: another hardware profile must be chosen."""
    why: str
    value: str = ""
    """The value for `set` and `at_most`; may name a group of the pattern in braces."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A cause of failure."""

    id: str
    title: str
    """A few words, as a heading."""
    cause: str
    """One or two sentences; may name groups of the pattern in braces."""
    fix: str
    patterns: tuple[re.Pattern[str], ...] = ()
    """Patterns of a line, without its prefixes (time, rank, level)."""
    where: tuple[str, ...] = ()
    """The processes that write the line, `vllm` for every server; () for any process."""
    when: str = ""
    """start | training; "" for any time."""
    near: tuple[re.Pattern[str], ...] = ()
    """Patterns of which one must match in the lines around the match, such as a frame of the traceback."""
    confidence: Confidence = Confidence.CERTAIN
    """The highest confidence of a match."""
    follows: tuple[str, ...] = ()
    """Entries of which this is a consequence: if one of them matches, this is not shown. `*`: any other entry."""
    reasons: tuple[str, ...] = ()
    """End reasons that prove this cause, alone or with one of `exits` if there are any."""
    exits: tuple[int, ...] = ()
    """Exit codes that suggest this cause if nothing else matches."""
    events: tuple[str, ...] = ()
    """Kinds of events in the outbox that prove this cause; their data must match `patterns` if there are any."""
    figures: bool = False
    """True if the trainer's lines of figures are searched too."""
    anywhere: bool = False
    """True if a match is certain on any line; otherwise only on a line where an error is raised or logged."""
    changes: tuple[Change, ...] = ()

    def filled(self, text: str, values: dict[str, str]) -> str:
        """Fill in a text's groups with the values of a match."""
        return _MatchFormatter().vformat(text, (), values)


class _MatchFormatter(string.Formatter):
    """A formatter with the groups of a match; a group that did not take part becomes an ellipsis."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return kwargs.get(str(key)) or "…"


@dataclass(frozen=True)
class Catalogue:
    entries: tuple[CatalogueEntry, ...]
    noise: tuple[re.Pattern[str], ...] = ()
    """Patterns of lines that mention errors but report none."""
    by_id: dict[str, CatalogueEntry] = field(default_factory=dict)


@functools.cache
def catalogue() -> Catalogue:
    """Read the catalogue, once. Raises BadCatalogue."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    all_entries = tuple(_entry(row) for row in table["entry"])
    by_id = {entry.id: entry for entry in all_entries}
    if len(by_id) < len(all_entries):
        raise BadCatalogue("two entries have the same id")
    for entry in all_entries:
        unknown = set(entry.follows) - set(by_id) - {"*"}
        if unknown:
            raise BadCatalogue(f"{entry.id} follows {', '.join(sorted(unknown))}, which are no entries")
    return Catalogue(all_entries, tuple(re.compile(pattern) for pattern in table["noise"]), by_id)


def entries() -> dict[str, CatalogueEntry]:
    """Map id -> entry, in the catalogue's order."""
    return catalogue().by_id


def _entry(row: dict[str, Any]) -> CatalogueEntry:
    values = dict(row)
    name = values.get("id", "an entry without an id")
    try:
        for key in ("patterns", "near"):
            values[key] = tuple(re.compile(pattern) for pattern in values.get(key, ()))
        for key in ("where", "follows", "reasons", "exits", "events"):
            values[key] = tuple(values.get(key, ()))
        values["confidence"] = Confidence(values.get("confidence", Confidence.CERTAIN))
        values["changes"] = tuple(Change(**change) for change in values.get("changes", ()))
        return CatalogueEntry(**values)
    except (TypeError, ValueError, re.error) as error:
        raise BadCatalogue(f"{name}: {error}") from error
