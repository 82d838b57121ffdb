"""Rules for the keys of a format, and the reader that applies a table of rules to a document."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.catalogue.exchange.reading import MAX_NOTES, DocumentKind, KeyVerdict, Reading, WrongValue
from controlplane.platform.safe_yaml import short

UNSET: Any = object()
"""Result of a converter for a value that means "not set"."""


@dataclass(frozen=True)
class Take:
    """A rule for a key whose value is stored at a path of the spec."""

    path: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    """Converter from the spec's value to the format's for an export; None if this key is never exported."""


@dataclass(frozen=True)
class Leave:
    """A rule for a key that is known and deliberately skipped."""

    reason: str


Rule = Take | Leave


@dataclass(frozen=True)
class Format:
    kind: DocumentKind
    table: Mapping[str, Rule]
    """Rules by the dotted path of the key in the document."""
    sections: frozenset[str] = frozenset()
    """Mappings whose keys are looked up one by one."""
    otherwise: Callable[[str, Mapping[str, str]], Rule | None] = lambda _key, _fields: None
    """Function that returns the rule for a key that isn't in the table, or None if the key is unknown."""
    finish: Callable[[Reading], None] = lambda _reading: None
    """Function that converts temporary values (`_…`) to those of the spec, and notes contradictions."""
    signs: frozenset[str] = frozenset()
    """Keys that no other format has at its top level."""


@dataclass
class TableReader:
    format: Format
    fields: Mapping[str, str]
    """Types of the installed TRL's GRPOConfig arguments, by name."""
    line_of: Callable[[str], int | None] = lambda _key: None
    reading: Reading = field(init=False)

    def __post_init__(self) -> None:
        self.reading = Reading(self.format.kind)

    def read(self, tree: Mapping[str, Any]) -> Reading:
        for key, raw in self._leaves(tree, ""):
            self._take(key, raw)
        self.format.finish(self.reading)
        self.reading.notes = [
            note if note.line else replace(note, line=self.line_of(note.key)) for note in self.reading.notes
        ]
        return self.reading

    def _leaves(self, tree: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
        for name, value in tree.items():
            key = f"{at}.{name}" if at else str(name)
            if "." in str(name):
                self._note(KeyVerdict.UNKNOWN, key, "Keys can't contain dots.")
            elif key in self.format.sections and isinstance(value, Mapping):
                yield from self._leaves(value, key)
            else:
                yield key, value

    def _take(self, key: str, raw: Any) -> None:
        rule = self.format.table.get(key) or self.format.otherwise(key, self.fields)
        if rule is None:
            self._note(KeyVerdict.UNKNOWN, key, f"The value was {short(raw)}.")
        elif raw is None:
            return
        elif isinstance(rule, Leave):
            self._note(KeyVerdict.LEFT_OUT, key, rule.reason)
        else:
            self._fill(rule, key, raw)

    def _note(self, verdict: KeyVerdict, key: str, text: str, **details: Any) -> None:
        full = len(self.reading.notes) >= MAX_NOTES
        self.reading.note(verdict, key, text, line=None if full else self.line_of(key), **details)

    def _fill(self, rule: Take, key: str, raw: Any) -> None:
        try:
            value = rule.read(raw)
        except WrongValue as error:
            self._note(KeyVerdict.WRONG, key, f"{error}, got {short(raw)}.", path=rule.path, raw=short(raw))
            return
        if value is UNSET:
            return
        if rule.path in self.reading.values and self.reading.values[rule.path] != value:
            earlier_key = self.reading.sources[rule.path]
            before = short(self.reading.values[rule.path])
            message = f"{short(raw)} contradicts {earlier_key}: {before}, which is kept."
            self._note(KeyVerdict.CONTRADICTION, key, message, path=rule.path)
            return
        self.reading.put(rule.path, value, key)


def build_document(table: Mapping[str, Rule], values: Mapping[str, Any]) -> dict[str, Any]:
    """Build a nested document of the values that the table has keys for, each under the first key of its path."""
    tree: dict[str, Any] = {}
    written_paths: set[str] = set()
    for key, rule in table.items():
        if isinstance(rule, Take) and rule.write and rule.path in values and rule.path not in written_paths:
            put(tree, key, rule.write(values[rule.path]))
            written_paths.add(rule.path)
    return tree


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key, creating its sections if needed."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(tree.get(section), dict):
            tree[section] = {}
        tree = tree[section]
    tree[name] = value


def unchanged(value: Any) -> Any:
    return value


# --- converters ---


def text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip() or len(raw) > 2000:
        raise WrongValue("Expected a string")
    return raw.strip()


def integer(raw: Any) -> int:
    value = number(raw)
    if value != int(value):
        raise WrongValue("Expected a whole number")
    return int(value)


def number(raw: Any) -> float | int:
    value = raw
    if isinstance(raw, str):
        try:
            value = float(raw)
        except ValueError as error:
            raise WrongValue("Expected a number") from error
        value = int(value) if value.is_integer() and not set(raw.lower()) & set(".e") else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e18:
        raise WrongValue("Expected a number")
    return value


def auto(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a converter so that it accepts "auto", which means "not set"."""
    return lambda raw: UNSET if raw == "auto" else read(raw)


def flag(raw: Any) -> bool:
    word = str(raw).strip().lower()
    if isinstance(raw, bool | str) and word in ("true", "yes", "on", "1", "false", "no", "off", "0"):
        return word in ("true", "yes", "on", "1")
    raise WrongValue("Expected true or false")


def tree(raw: Any) -> Any:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise WrongValue("Expected JSON") from error
    return raw


def names(raw: Any) -> tuple[str, ...]:
    listed = raw.replace(",", " ").split() if isinstance(raw, str) else raw
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(name, str) for name in listed):
        raise WrongValue("Expected a list of names")
    return tuple(listed)


def one_of(**choices: Any) -> Callable[[Any], Any]:
    def read(raw: Any) -> Any:
        choice = str(raw).strip().lower()
        if choice not in choices:
            raise WrongValue(f"Expected one of {', '.join(choices)}")
        return choices[choice]

    return read


def typed(kind: str) -> Callable[[Any], Any]:
    """Return the converter for a type of the trainer's schema; values of other types become strings."""
    converters: dict[str, Callable[[Any], Any]] = {"int": integer, "float": number, "bool": flag, "json": tree}
    return converters.get(kind, _plain)


def _plain(raw: Any) -> str:
    if not isinstance(raw, str | int | float | bool):
        raise WrongValue("Expected a single value")
    return str(raw)
