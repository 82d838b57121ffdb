"""The catalogue of causes, read from catalogue.toml and checked once."""

import functools
import re
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("catalogue.toml")
_PART = re.compile(r"\[\[(?P<text>[^\[\]|]*)(?:\|\|(?P<otherwise>[^\[\]]*))?\]\]")
_GROUP = re.compile(r"\{(\w+)\}")


class Confidence(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        """Position in the order of confidence, 0 for certain."""
        return list(Confidence).index(self)

    def lowered(self, steps: int = 1) -> "Confidence":
        return list(Confidence)[min(self.rank + steps, 2)]


class BadCatalogue(ValueError):
    """Error for an invalid entry; the message names the entry."""


@dataclass(frozen=True)
class Change:
    """A change to a run's settings that fixes a cause."""

    field: str
    how: str
    """halve | double | set | at_most | profile; `profile` means that another hardware profile must be chosen."""
    why: str
    value: str = ""
    """Value for `set` and `at_most`, which may refer to a group of the pattern in braces."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A cause of failure, with the evidence for it and its fix."""

    id: str
    title: str
    cause: str
    """One or two sentences, which may refer to groups of the pattern in braces."""
    fix: str
    patterns: tuple[re.Pattern[str], ...] = ()
    where: tuple[str, ...] = ()
    """Processes that write the line, with `vllm` for all servers; () for any process."""
    when: str = ""
    """When the cause occurs: "start", "training", "end" for after it, or "" for any time."""
    near: tuple[re.Pattern[str], ...] = ()
    """Patterns, at least one of which must match a line around the match, such as a frame of the traceback."""
    confidence: Confidence = Confidence.CERTAIN
    follows: tuple[str, ...] = ()
    """Entries of which this cause is a consequence. If one of them matches, this cause isn't shown; `*` means any other
    entry, `tls_*` any other of that family."""
    reasons: tuple[str, ...] = ()
    """End reasons that prove this cause; if `exits` is not empty, one of its codes must occur as well."""
    exits: tuple[int, ...] = ()
    events: tuple[str, ...] = ()
    """Kinds of events in the outbox that prove this cause; their data must match `patterns` if there are any."""
    endpoint: str = ""
    """Whose server the cause is about: "own" (the run's), "other", or "" for any; a port in the line must agree."""
    figures: bool = False
    """True if the trainer's lines of metrics are searched too."""
    anywhere: bool = False
    """True if a match on any line is reliable; otherwise only on a line that raises or logs an error."""
    changes: tuple[Change, ...] = ()

    @property
    def is_specific(self) -> bool:
        """Whether a match explains an error, rather than reports that there was one."""
        return "*" not in self.follows and self.confidence is not Confidence.POSSIBLE

    def filled(self, template: str, values: dict[str, str]) -> str:
        """Return a template with the values of a match. Groups are in double square brackets, whose part after a double
        bar, or nothing, is used if a group has no value: `needs [[the package {name}||a package]]`."""
        return _PART.sub(lambda part: _part(part, values), template)


def _part(part: re.Match[str], values: dict[str, str]) -> str:
    names = _GROUP.findall(part["text"])
    if not all(values.get(name) for name in names):
        return part["otherwise"] or ""
    return _GROUP.sub(lambda group: values[group[1]], part["text"])


@dataclass(frozen=True)
class Catalogue:
    entries: tuple[CatalogueEntry, ...]
    noise: tuple[re.Pattern[str], ...] = ()
    """Patterns for lines that mention errors but report none."""
    fallbacks: tuple[re.Pattern[str], ...] = ()
    """Patterns for lines that say what is done instead, unless they raise an error."""
    prefixes: tuple[str, ...] = ()
    stems: tuple[str, ...] = ()
    layers: dict[str, str] = field(default_factory=dict)
    """Names of packages, by the folders in which a traceback shows them."""
    by_id: dict[str, CatalogueEntry] = field(default_factory=dict)


@functools.cache
def catalogue() -> Catalogue:
    """Read and check the catalogue, once per process, and return it. Raises BadCatalogue if its entries contradict the
    rules, such as two with the same id."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = table["entry"]
    all_entries = tuple(_entry({**row, "follows": _with_families(row, rows)}) for row in rows)
    by_id = {entry.id: entry for entry in all_entries}
    if len(by_id) < len(all_entries):
        raise BadCatalogue("two entries have the same id")
    for entry in all_entries:
        unknown = set(entry.follows) - set(by_id) - {"*"}
        if unknown:
            raise BadCatalogue(f"{entry.id} follows {', '.join(sorted(unknown))}, which are not entries")
    noise, fallbacks = (tuple(re.compile(pattern) for pattern in table[key]) for key in ("noise", "fallbacks"))
    prefixes, stems = tuple(table["prefixes"]), tuple(table["stems"])
    return Catalogue(all_entries, noise, fallbacks, prefixes, stems, dict(table["layers"]), by_id)


def _with_families(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Return the ids that an entry follows, with the other members of a family in place of its pattern, `tls_*`."""
    ids = [other["id"] for other in rows if other["id"] != row.get("id")]
    follows = row.get("follows", ())
    families = {id_: [other for other in ids if other.startswith(id_[:-1])] for id_ in follows if id_.endswith("_*")}
    return [member for id_ in follows for member in families.get(id_, [id_])]


def entries() -> dict[str, CatalogueEntry]:
    """Return the entries by id, in the catalogue's order."""
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
        for text in (values["cause"], values["fix"], *(change.value for change in values["changes"])):
            if _GROUP.search(_PART.sub("", text)):
                raise BadCatalogue(f"{name}: a group outside double square brackets in {text!r}")
        return CatalogueEntry(**values)
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise BadCatalogue(f"{name}: {error}") from error
