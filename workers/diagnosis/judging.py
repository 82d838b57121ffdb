"""From the lines that match to causes, the likelier first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.diagnosis.catalogue import Change, Confidence, Entry, catalogue
from workers.diagnosis.scanning import (
    LONG,
    LogLine,
    Told,
    around,
    clean,
    is_progress,
    raw_lines,
    read,
    shape_of,
    step_of,
)

SHOWN = 400
"""Characters of a line of evidence."""
MOST_EVIDENCE = 4
MOST_SHAPES = 200_000
"""Lines that differ in more than digits, per log; of later ones, only those that raise an error are matched."""
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)")


@dataclass(frozen=True)
class Log:
    """A process's log."""

    role: str
    """trainer, vllm, ...; "" for a log that says nothing of its process."""
    path: Path


@dataclass(frozen=True)
class Facts:
    """What is known besides the logs."""

    reason: str = ""
    """The run's end reason."""
    exits: dict[str, int] = field(default_factory=dict)
    """Role -> exit code, in the order of the exits."""
    events: tuple[tuple[str, str], ...] = ()
    """(kind, data as JSON) of the outbox's telling events."""
    trained: bool | None = None
    """Whether training had begun; None: not known."""

    @property
    def first_role(self) -> str:
        """The process that ended first by itself."""
        return next((role for role, code in self.exits.items() if code not in (0, 143, -15)), "")


@dataclass(frozen=True)
class Diagnosis:
    """A cause of the failure, with what it rests on."""

    id: str
    title: str
    cause: str
    fix: str
    confidence: Confidence
    lines: tuple[LogLine, ...] = ()
    facts: tuple[str, ...] = ()
    """Evidence other than lines, in words."""
    values: dict[str, str] = field(default_factory=dict)
    """What the pattern's groups have found."""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Report:
    diagnoses: tuple[Diagnosis, ...]
    """The likelier first; () if nothing is known."""
    first_errors: tuple[LogLine, ...]
    """The first error of each process."""

    def as_dict(self) -> dict[str, Any]:
        """The parts that travel; the words are in the catalogue."""
        return {
            "diagnoses": [
                {
                    "id": one.id,
                    "confidence": str(one.confidence),
                    "values": one.values,
                    "lines": [[line.file, line.number, line.text] for line in one.lines],
                    "facts": list(one.facts),
                }
                for one in self.diagnoses
            ],
            "first_errors": [[line.file, line.number, line.text] for line in self.first_errors],
        }


@dataclass
class _Match:
    entry: Entry
    role: str
    confidence: Confidence
    lines: list[LogLine]
    facts: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    at: float = 0.0
    """Where in the log, 0 to 1."""
    mild: bool = False
    """No more than a warning speaks for it."""


@dataclass(frozen=True)
class _Place:
    """A line of a log, and where it is."""

    offset: int
    number: int
    line: Told


class Scan:
    """One log against the whole catalogue."""

    def __init__(self, log: Log, most: int | None) -> None:
        self.log = log
        self.matches: dict[str, _Match] = {}
        self.first_error: LogLine | None = None
        self._latest: dict[str, int] = {}
        """Where each entry's lines were last seen."""
        self._progress_at = -1
        self._found: dict[str, list[tuple[_Place, re.Match[str]]]] = {}
        self._entries = [entry for entry in catalogue().entries if entry.patterns and _is_written_by(entry, log.role)]
        self._read(most)
        self._judge()

    def _read(self, most: int | None) -> None:
        shapes: dict[int, tuple[list[str], bool]] = {}
        step = b""
        for offset, number, raw in raw_lines(self.log.path, most):
            shape = shape_of(raw)
            known = shapes.get(shape)
            if known is None:
                full = len(shapes) >= MOST_SHAPES
                known = self._look(offset, number, raw, only_raised=full)
                if not full:
                    shapes[shape] = known
            matched, progress = known
            if progress and (bar := step_of(raw)) != step:
                self._progress_at, step = offset, bar
            for id_ in matched:
                self._latest[id_] = offset

    def _look(self, offset: int, number: int, raw: bytes, *, only_raised: bool) -> tuple[list[str], bool]:
        """The ids of the entries that a line of a new shape matches, and whether it shows progress."""
        line = read(raw)
        if line is None or (only_raised and not line.raised):
            return [], is_progress(clean(raw)[0]) if len(raw) < LONG else False
        if _is_noise(line.text):
            return [], False
        place = _Place(offset, number, line)
        if self.first_error is None and line.raised and not line.figures and not _TRACEBACK.match(line.text):
            self.first_error = self._shown(place)
        matched = []
        for entry in self._entries:
            if line.figures and not entry.figures:
                continue
            if found := next((match for pattern in entry.patterns if (match := pattern.search(line.text))), None):
                self._found.setdefault(entry.id, []).append((place, found))
                matched.append(entry.id)
        return matched, is_progress(line.text)

    def _judge(self) -> None:
        size = max(1, self.log.path.stat().st_size)
        texts: dict[int, str] = {}
        for entry in self._entries:
            good = [
                (place, found)
                for place, found in self._found.get(entry.id, ())
                if not entry.near or self._is_near(entry, place.offset, texts)
            ]
            if not good:
                continue
            place, found = min(good, key=_quality)
            line, confidence = place.line, entry.confidence
            if not (line.raised or entry.anywhere or (line.figures and entry.figures)):
                confidence = confidence.lowered(2 if line.mild else 1)
            if self._latest[entry.id] < self._progress_at and not line.figures:
                confidence = Confidence.POSSIBLE  # the process went on after it
            values = {name: value for name, value in found.groupdict().items() if value}
            lines = list(dict.fromkeys(self._shown(place) for place, _ in [(place, found), *good]))[:MOST_EVIDENCE]
            match = _Match(entry, self.log.role, confidence, lines, [], values, place.offset / size)
            match.mild = line.mild and not entry.anywhere
            self.matches[entry.id] = match

    def _is_near(self, entry: Entry, offset: int, texts: dict[int, str]) -> bool:
        text = texts.get(offset) or texts.setdefault(offset, around(self.log.path, offset))
        return any(pattern.search(text) for pattern in entry.near)

    def _shown(self, place: _Place) -> LogLine:
        return LogLine(self.log.path.name, place.number, place.line.text[:SHOWN])


def _is_noise(text: str) -> bool:
    return any(pattern.search(text) for pattern in catalogue().noise)


def _quality(one: tuple[_Place, re.Match[str]]) -> tuple[bool, int]:
    """The line that raises is better evidence than one that mentions, and one that says more than one that says less;
    of equals, the first."""
    place, found = one
    return not place.line.raised, -sum(value is not None for value in found.groups())


def judge(logs: Sequence[Log], facts: Facts, most: int | None = None) -> Report:
    """Diagnose from the logs, as far as they can be read, and the facts."""
    scans: list[Scan] = []
    for log in logs:
        try:
            scans.append(Scan(log, most))
        except OSError:
            continue
    matches = [match for scan in scans for match in scan.matches.values()]
    matches += _from_facts(facts, {match.entry.id: match for match in matches})
    matches = _without_consequences(_merged(matches))
    for match in matches:
        _weigh(match, facts)
    if any(match.confidence is not Confidence.POSSIBLE for match in matches):
        matches = [match for match in matches if not match.mild]
    matches = matches or _from_exits(facts)
    matches.sort(key=lambda match: _order(match, facts))
    _humble(matches)
    errors = tuple(scan.first_error for scan in scans if scan.first_error is not None)
    return Report(tuple(_diagnosis(match) for match in matches), errors)


def _is_written_by(entry: Entry, role: str) -> bool:
    """A log that says nothing of its process may be anyone's."""
    return not entry.where or not role or role.partition("-")[0] in entry.where


def _from_facts(facts: Facts, matched: dict[str, _Match]) -> list[_Match]:
    made = []
    for entry in catalogue().entries:
        words, values = _in_facts(entry, facts)
        if not words:
            continue
        if entry.id in matched:
            matched[entry.id].facts += words
            matched[entry.id].confidence = entry.confidence
        else:
            made.append(_Match(entry, "", entry.confidence, [], words, values, 1.0))
    return made


def _in_facts(entry: Entry, facts: Facts) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    values: dict[str, str] = {}
    if facts.reason in entry.reasons and (not entry.exits or set(entry.exits) & set(facts.exits.values())):
        words.append(f"The run ended as {facts.reason.replace('_', ' ')}.")
    for kind, data in facts.events:
        if kind in entry.events:
            found = next((match for pattern in entry.patterns if (match := pattern.search(data))), None)
            if found or not entry.patterns:
                words.append(_event_words(kind, data)[:SHOWN])
                values |= {name: value for name, value in (found.groupdict() if found else {}).items() if value}
    return list(dict.fromkeys(words))[:MOST_EVIDENCE], values


def _event_words(kind: str, data: str) -> str:
    """Its own sentence if it has one."""
    value = json.loads(data)
    text = value.get("text") if isinstance(value, dict) else None
    return str(text) if text else f"Event {kind.replace('_', ' ')}: {data}"


def _from_exits(facts: Facts) -> list[_Match]:
    """Only an exit code: nothing in the logs says more."""
    made = []
    for role, code in facts.exits.items():
        for entry in catalogue().entries:
            if code in entry.exits and not entry.reasons and _is_written_by(entry, role):
                words = [f"{role} exited with {code}."]
                made.append(_Match(entry, role, Confidence.POSSIBLE, [], words, {}, 1.0))
    return made


def _merged(matches: Iterable[_Match]) -> list[_Match]:
    """One of each entry: the surest log's first."""
    by_id: dict[str, _Match] = {}
    for match in sorted(matches, key=lambda one: one.confidence.rank):
        held = by_id.setdefault(match.entry.id, match)
        if held is not match:
            held.lines = [*held.lines, *match.lines][:MOST_EVIDENCE]
    return list(by_id.values())


def _without_consequences(matches: list[_Match]) -> list[_Match]:
    """Without entries that follow from another that matches as surely."""
    sure = {match.entry.id: match.confidence.rank for match in matches}

    def is_consequence(match: _Match) -> bool:
        follows = match.entry.follows
        others = [
            rank
            for id_, rank in sure.items()
            if id_ != match.entry.id and (id_ in follows or ("*" in follows and "*" not in _follows(id_)))
        ]
        return any(rank <= Confidence.LIKELY.rank or rank <= match.confidence.rank for rank in others)

    return [match for match in matches if not is_consequence(match)]


def _follows(id_: str) -> tuple[str, ...]:
    return catalogue().by_id[id_].follows


def _weigh(match: _Match, facts: Facts) -> None:
    entry = match.entry
    if facts.trained is not None and entry.when and (entry.when == "training") != facts.trained and not match.facts:
        match.confidence = match.confidence.lowered()
    if facts.first_role and match.role and match.role != facts.first_role and not match.facts:
        # Another process ended first: what this one says may only follow from that.
        match.confidence = match.confidence.lowered()


def _order(match: _Match, facts: Facts) -> tuple[int, int, int, float]:
    general = 1 if "*" in match.entry.follows else 0
    elsewhere = 1 if facts.first_role and match.role != facts.first_role else 0
    return match.confidence.rank, general, elsewhere, match.at


def _humble(matches: list[_Match]) -> None:
    """Two certain causes are not both certain: the second is likely."""
    for match in matches[1:]:
        if match.confidence is Confidence.CERTAIN:
            match.confidence = Confidence.LIKELY


def _diagnosis(match: _Match) -> Diagnosis:
    entry, values = match.entry, match.values
    changes = tuple(
        Change(change.field, change.how, change.why, entry.words(change.value, values)) for change in entry.changes
    )
    return Diagnosis(
        entry.id,
        entry.title,
        entry.words(entry.cause, values),
        entry.words(entry.fix, values),
        match.confidence,
        tuple(match.lines),
        tuple(match.facts),
        values,
        changes,
    )
