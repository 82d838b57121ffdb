"""Rules for the keys of a format, and the reader that applies a table of rules to a document."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controlplane.catalogue.exchange.reading import MAX_NOTES, DocumentKind, KeyVerdict, Reading, WrongValue
from controlplane.platform.safe_yaml import short_value

DEFAULTS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("defaults.toml").read_text())
"""Defaults of tools by their names, and by the calls of their scripts."""
UNSET: Any = object()
"""Result of a converter for values that mean "not set"."""
LENGTHS = {"grpo.num_train_epochs": "grpo.max_steps", "grpo.max_steps": "grpo.num_train_epochs"}
"""Two ways to give a run's length; the default of one doesn't apply beside the other."""


@dataclass(frozen=True)
class Take:
    """Rule for a key whose value is stored at a path in the spec."""

    path: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    """Converter from the spec's value to the format's for an export; None if this key is never exported."""


@dataclass(frozen=True)
class Leave:
    """Rule for a known key that is deliberately skipped."""

    reason: str


@dataclass(frozen=True)
class Lead(Leave):
    """Rule for a key that names what is chosen here by hand: the dataset or the rewards."""

    kind: str = ""


Rule = Take | Leave


@dataclass(frozen=True)
class Format:
    kind: DocumentKind
    table: Mapping[str, Rule]
    """Rules by the dotted path of the key in the document."""
    sections: frozenset[str] = frozenset()
    """Dotted paths of mappings whose keys are looked up one by one."""
    otherwise: Callable[[str, Mapping[str, str]], Rule | None] = lambda _key, _fields: None
    """Function that returns the rule for a key that isn't in the table, or None if the key is unknown."""
    finish: Callable[[Reading], None] = lambda _reading: None
    """Function that converts temporary values (`_…`) to values of the spec, and notes contradictions."""
    signs: frozenset[str] = frozenset()
    """Keys that no other format has at its top level."""
    dotted: bool = False
    """True if a mapping is always a section, because its keys were written with dots, as in a command's a.b=c."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values that the tool uses for keys that a document omits; one that depends on the adapter has "lora" and "full",
    or only one of them, and may be a multiple of another key's value, as in "2 * lora_rank"."""


@dataclass
class TableReader:
    format: Format
    fields: Mapping[str, str]
    """Types of GRPOConfig's arguments in the installed TRL, by name."""
    line_of: Callable[[str], int | None] = lambda _key: None
    reading: Reading = field(init=False)
    _given: set[str] = field(default_factory=set, init=False)
    """Paths for which the document has a value, even one that isn't used."""

    def __post_init__(self) -> None:
        self.reading = Reading(self.format.kind)

    def read(self, tree: Mapping[str, Any]) -> Reading:
        for key, raw in self._leaves(tree, ""):
            self._take(key, raw)
        self._take_defaults()
        self.format.finish(self.reading)
        self.reading.notes = [
            note if note.line else replace(note, line=self.line_of(note.key)) for note in self.reading.notes
        ]
        return self.reading

    def _leaves(self, tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in tree.items():
            key = f"{prefix}.{name}" if prefix else str(name)
            if "." in str(name):
                self._note(KeyVerdict.UNKNOWN, key, "Keys can't contain dots.")
            elif isinstance(value, Mapping) and value and self._is_section(key):
                yield from self._leaves(value, key)
            else:
                yield key, value

    def _is_section(self, key: str) -> bool:
        """Return whether a mapping's keys are read one by one: those of known sections, and of all unknown ones."""
        is_dotted = self.format.dotted and key != "env"
        return is_dotted or key in self.format.sections or self._rule(key) is None

    def _rule(self, key: str) -> Rule | None:
        return self.format.table.get(key) or self.format.otherwise(key, self.fields)

    def _take(self, key: str, raw: Any) -> None:
        rule = self._rule(key)
        if rule is None:
            self._note(KeyVerdict.UNKNOWN, key, f"The value was {short_value(raw)}.")
        elif raw is None:
            self.reading.taken.append(key)  # it has its default
        elif isinstance(rule, Leave):
            names = f" The document names {short_value(raw)}." if isinstance(rule, Lead) else ""
            self._note(KeyVerdict.LEFT_OUT, key, f"{rule.reason}{names}")
            if isinstance(rule, Lead):
                self.reading.leads.setdefault(rule.kind, []).extend(named(raw))
        else:
            self.reading.taken.append(key)
            self._fill(rule, key, raw)

    def _take_defaults(self) -> None:
        """Fill what a document leaves to the tool's defaults; each is noted. A document without a model is a part of
        one, except for a script, whose calls have their defaults in any case."""
        reading = self.reading
        if "model.path" not in reading.values and reading.kind != DocumentKind.PYTHON:
            return
        given = {*self._given}
        for key, default in self.format.defaults.items():
            rule, value = self._rule(key), self._default(default)
            if not isinstance(rule, Take) or value is None or rule.path in given:
                continue
            if LENGTHS.get(rule.path) in reading.values:
                continue
            self._fill(rule, key, value)
            if rule.path in reading.values:
                text = f"{short_value(value)} is taken from the tool's default, because the document doesn't set it."
                reading.note(KeyVerdict.ASSUMED, key, text, path=rule.path)
                reading.by_default.append(key)

    def _default(self, default: Any) -> Any:
        if isinstance(default, Mapping) and {*default} <= {"lora", "full"}:
            values = self.reading.values
            adapter = bool(self.reading.below("lora")) or values.get("_bridge") == "lora_only"
            is_lora = values.get("_use_peft", values.get("_adapter", adapter))
            default = default.get("lora" if is_lora else "full")
        if isinstance(default, str) and default.startswith("2 * "):
            rule = self._rule(default.removeprefix("2 * "))
            default = 2 * self.reading.values.get(rule.path, 0) if isinstance(rule, Take) else None
        return default

    def _note(self, verdict: KeyVerdict, key: str, text: str, **details: Any) -> None:
        is_full = len(self.reading.notes) >= MAX_NOTES
        self.reading.note(verdict, key, text, line=None if is_full else self.line_of(key), **details)

    def _fill(self, rule: Take, key: str, raw: Any) -> None:
        self._given.add(rule.path)
        try:
            value = rule.read(raw)
        except WrongValue as error:
            self._note(KeyVerdict.WRONG, key, f"{error}, got {short_value(raw)}.", path=rule.path, raw=short_value(raw))
            return
        if value is UNSET:
            return
        if rule.path in self.reading.values and self.reading.values[rule.path] != value:
            earlier_key = self.reading.sources[rule.path]
            earlier_value = short_value(self.reading.values[rule.path])
            message = f"{short_value(raw)} contradicts {earlier_key}: {earlier_value}, which is kept."
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


def named(raw: Any) -> list[str]:
    """Return the names in a value: a text or number, or a list of those or of mappings with a path or a name."""
    if isinstance(raw, str | int | float):
        return [str(raw)]
    if isinstance(raw, Mapping):
        return named(raw.get("path") or raw.get("id") or raw.get("name"))
    return [name for part in raw for name in named(part)][:20] if isinstance(raw, list | tuple) else []


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
