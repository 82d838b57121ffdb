"""What is proposed for a file's columns, and questions about columns that its recognition asks."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.catalogue.datasets.reader.columns.column_names import DESCRIPTIVE_WORDS
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.columns.paths import value_of

Rows = Sequence[Mapping[str, Any]]
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


@dataclass(frozen=True)
class Recognised:
    """Proposed mapping, with the reasons for it."""

    schema: str
    """Slug of the schema: one of SCHEMAS, `messages`, `by_words`, `text` or `unknown`, or the slug of a refinement."""
    title: str
    why: str
    mapping: ColumnMapping

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "mapping": self.mapping.as_dict()}


def first(candidates: Sequence[str], names: Mapping[str, str]) -> str:
    return next((names[name] for name in candidates if name in names), "")


def all_match(rows: Rows, column: str, predicate: Callable[[Any], bool]) -> bool:
    """Return whether the column has non-empty values, all of which match."""
    values = [value for row in rows if (value := value_of(row, column)) not in (None, "")]
    return bool(values) and all(map(predicate, values))


def holds(rows: Rows, column: str, predicate: Callable[[Any], bool]) -> bool:
    """Return whether all non-empty values of the column match, if it has any in these rows."""
    return all(predicate(value) for row in rows if (value := value_of(row, column)) not in (None, ""))


def with_word(words: Sequence[str], names: Mapping[str, str], excluded: Sequence[str] = (), rows: Rows = ()) -> str:
    """Return the column named with the earliest of these words and with no descriptive or `excluded` one, or "" if
    there is none. Of several, return the one with the longest texts in `rows`, or the first."""
    for word in words:
        matches = list[str]()
        for name in names.values():
            parts = {*name_words(name)} | {part.removesuffix("s") for part in name_words(name)}
            if word in parts and not parts & (DESCRIPTIVE_WORDS | {*excluded}):
                matches.append(name)
        if matches:
            return max(matches, key=lambda name: length(rows, name))
    return ""


def length(rows: Rows, name: str) -> int:
    return sum(len(str(value_of(row, name) or "")) for row in rows)


def name_words(name: str) -> list[str]:
    """Split a name into lower-case words, the same for “Question Text”, question-text and questionText."""
    return [word.lower() for word in _WORD.findall(name)]
