"""Judgement of the lines that match entries of the catalogue, and a ranking of the causes by likelihood."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workers.diagnosis.catalogue import CatalogueEntry, Change, Confidence, catalogue
from workers.diagnosis.scanning import (
    LONG,
    LineFacts,
    LogLine,
    around,
    clean,
    is_progress,
    raw_lines,
    read,
    shape_of,
    step_of,
)

SHOWN = 400
"""The longest line of evidence, in characters."""
MAX_EVIDENCE = 4
MAX_SHAPES = 200_000
"""The largest number of shapes (lines without their digits) in a log; beyond it, only lines that raise an error are
matched."""
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)")


@dataclass(frozen=True)
class Log:
    role: str
    """trainer, vllm, ...; "" if unknown."""
    path: Path


@dataclass(frozen=True)
class Facts:
    """Facts about a failed attempt besides its logs."""

    reason: str = ""
    """The run's end reason."""
    exits: dict[str, int] = field(default_factory=dict)
    """Role -> exit code, in the order of the exits."""
    events: tuple[tuple[str, str], ...] = ()
    """(kind, data as JSON) of the events that may be evidence."""
    trained: bool | None = None
    """True if training had begun; None: unknown."""

    @property
    def first_role(self) -> str:
        """The process that failed first; "" if none did."""
        return next((role for role, code in self.exits.items() if code not in (0, 143, -15)), "")


@dataclass(frozen=True)
class Diagnosis:
    """A cause of the failure, with its evidence."""

    id: str
    title: str
    cause: str
    fix: str
    confidence: Confidence
    lines: tuple[LogLine, ...] = ()
    facts: tuple[str, ...] = ()
    """Evidence other than lines, as sentences."""
    values: dict[str, str] = field(default_factory=dict)
    """The pattern's groups."""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Report:
    diagnoses: tuple[Diagnosis, ...]
    """The likeliest first; () if no cause is known."""
    first_errors: tuple[LogLine, ...]
    """The first error of each process."""

    def as_dict(self) -> dict[str, Any]:
        """Convert the parts to send; the texts are in the catalogue."""
        return {
            "diagnoses": [
                {
                    "id": diagnosis.id,
                    "confidence": str(diagnosis.confidence),
                    "values": diagnosis.values,
                    "lines": [[line.file, line.number, line.text] for line in diagnosis.lines],
                    "facts": list(diagnosis.facts),
                }
                for diagnosis in self.diagnoses
            ],
            "first_errors": [[line.file, line.number, line.text] for line in self.first_errors],
        }


@dataclass
class _Match:
    entry: CatalogueEntry
    role: str
    confidence: Confidence
    lines: list[LogLine]
    facts: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    at: float = 0.0
    """The position in the log, from 0 to 1."""
    mild: bool = False
    """True if the evidence is no more than a warning."""


@dataclass(frozen=True)
class _Position:
    """A line of a log with its position."""

    offset: int
    number: int
    line: LineFacts


class Scan:
    """The entries of the catalogue that one log matches."""

    def __init__(self, log: Log, limit: int | None) -> None:
        self.log = log
        self.matches: dict[str, _Match] = {}
        self.first_error: LogLine | None = None
        self._latest: dict[str, int] = {}
        """Entry -> the offset of the last line that it matches."""
        self._progress_at = -1
        self._hits: dict[str, list[tuple[_Position, re.Match[str]]]] = {}
        self._entries = [entry for entry in catalogue().entries if entry.patterns and _is_written_by(entry, log.role)]
        self._read(limit)
        self._judge()

    def _read(self, limit: int | None) -> None:
        shapes: dict[int, tuple[list[str], bool]] = {}
        step = b""
        for offset, number, raw in raw_lines(self.log.path, limit):
            shape = shape_of(raw)
            result = shapes.get(shape)
            if result is None:
                full = len(shapes) >= MAX_SHAPES
                result = self._match(offset, number, raw, only_raised=full)
                if not full:
                    shapes[shape] = result
            matched, progress = result
            if progress and (bar := step_of(raw)) != step:
                self._progress_at, step = offset, bar
            for id_ in matched:
                self._latest[id_] = offset

    def _match(self, offset: int, number: int, raw: bytes, *, only_raised: bool) -> tuple[list[str], bool]:
        """Match a line of a new shape: the ids of the entries that it matches, and whether it shows progress."""
        line = read(raw)
        if line is None or (only_raised and not line.raised):
            return [], is_progress(clean(raw)[0]) if len(raw) < LONG else False
        if any(pattern.search(line.text) for pattern in catalogue().noise):
            return [], False
        position = _Position(offset, number, line)
        if self.first_error is None and line.raised and not line.figures and not _TRACEBACK.match(line.text):
            self.first_error = self._shown(position)
        matched = []
        for entry in self._entries:
            if line.figures and not entry.figures:
                continue
            if hit := next((match for pattern in entry.patterns if (match := pattern.search(line.text))), None):
                self._hits.setdefault(entry.id, []).append((position, hit))
                matched.append(entry.id)
        return matched, is_progress(line.text)

    def _judge(self) -> None:
        size = max(1, self.log.path.stat().st_size)
        texts: dict[int, str] = {}
        for entry in self._entries:
            hits = [
                (position, match)
                for position, match in self._hits.get(entry.id, ())
                if not entry.near or self._is_near(entry, position.offset, texts)
            ]
            if not hits:
                continue
            # A line that raises is better evidence, and a match with more groups; of equals, the first.
            position, best = min(hits, key=lambda hit: (not hit[0].line.raised, hit[1].groups().count(None)))
            line, confidence = position.line, entry.confidence
            if not (line.raised or entry.anywhere or (line.figures and entry.figures)):
                confidence = confidence.lowered(2 if line.mild else 1)
            if self._latest[entry.id] < self._progress_at and not line.figures:
                confidence = Confidence.POSSIBLE  # the process continued after this line
            values = {name: value for name, value in best.groupdict().items() if value}
            lines = list(dict.fromkeys(self._shown(hit) for hit, _ in [(position, best), *hits]))[:MAX_EVIDENCE]
            match = _Match(entry, self.log.role, confidence, lines, [], values, position.offset / size)
            match.mild = line.mild and not entry.anywhere
            self.matches[entry.id] = match

    def _is_near(self, entry: CatalogueEntry, offset: int, texts: dict[int, str]) -> bool:
        text = texts.get(offset) or texts.setdefault(offset, around(self.log.path, offset))
        return any(pattern.search(text) for pattern in entry.near)

    def _shown(self, position: _Position) -> LogLine:
        return LogLine(self.log.path.name, position.number, position.line.text[:SHOWN])


def judge(logs: Sequence[Log], facts: Facts, limit: int | None = None) -> Report:
    """Diagnose a failure by the facts, and by the logs as far as they can be read. `limit`: bytes of each log."""
    scans: list[Scan] = []
    for log in logs:
        try:
            scans.append(Scan(log, limit))
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
    matches.sort(key=lambda match: _rank(match, facts))
    for match in matches[1:]:
        if match.confidence is Confidence.CERTAIN:
            match.confidence = Confidence.LIKELY  # two causes are not both certain
    errors = tuple(scan.first_error for scan in scans if scan.first_error is not None)
    return Report(tuple(_diagnosis(match) for match in matches), errors)


def _is_written_by(entry: CatalogueEntry, role: str) -> bool:
    # A log of an unknown process may be from any.
    return not entry.where or not role or role.partition("-")[0] in entry.where


def _from_facts(facts: Facts, matched: dict[str, _Match]) -> list[_Match]:
    matches = []
    for entry in catalogue().entries:
        sentences, values = _evidence_in_facts(entry, facts)
        if not sentences:
            continue
        if entry.id in matched:
            matched[entry.id].facts += sentences
            matched[entry.id].confidence = entry.confidence
        else:
            matches.append(_Match(entry, "", entry.confidence, [], sentences, values, 1.0))
    return matches


def _evidence_in_facts(entry: CatalogueEntry, facts: Facts) -> tuple[list[str], dict[str, str]]:
    sentences: list[str] = []
    values: dict[str, str] = {}
    if facts.reason in entry.reasons and (not entry.exits or set(entry.exits) & set(facts.exits.values())):
        sentences.append(f"The run ended as {facts.reason.replace('_', ' ')}.")
    for kind, data in facts.events:
        if kind in entry.events:
            hit = next((match for pattern in entry.patterns if (match := pattern.search(data))), None)
            if hit or not entry.patterns:
                sentences.append(_event_sentence(kind, data)[:SHOWN])
                values |= {name: value for name, value in (hit.groupdict() if hit else {}).items() if value}
    return list(dict.fromkeys(sentences))[:MAX_EVIDENCE], values


def _event_sentence(kind: str, data: str) -> str:
    value = json.loads(data)
    text = value.get("text") if isinstance(value, dict) else None
    return str(text) if text else f"Event {kind.replace('_', ' ')}: {data}"


def _from_exits(facts: Facts) -> list[_Match]:
    """Match exit codes alone, when the logs have no evidence."""
    return [
        _Match(entry, role, Confidence.POSSIBLE, [], [f"{role} exited with {code}."], {}, 1.0)
        for role, code in facts.exits.items()
        for entry in catalogue().entries
        if code in entry.exits and not entry.reasons and _is_written_by(entry, role)
    ]


def _merged(matches: Iterable[_Match]) -> list[_Match]:
    """Merge the matches of each entry, beginning with the log of the highest confidence."""
    by_id: dict[str, _Match] = {}
    for match in sorted(matches, key=lambda match: match.confidence.rank):
        first = by_id.setdefault(match.entry.id, match)
        if first is not match:
            first.lines = [*first.lines, *match.lines][:MAX_EVIDENCE]
    return list(by_id.values())


def _without_consequences(matches: list[_Match]) -> list[_Match]:
    """Leave out entries that follow from another entry with at least the same confidence."""
    by_id = catalogue().by_id
    sure = {match.entry.id: match.confidence.rank for match in matches}

    def is_consequence(match: _Match) -> bool:
        follows = match.entry.follows
        causes = [
            rank
            for id_, rank in sure.items()
            if id_ != match.entry.id and (id_ in follows or ("*" in follows and "*" not in by_id[id_].follows))
        ]
        return any(rank <= Confidence.LIKELY.rank or rank <= match.confidence.rank for rank in causes)

    return [match for match in matches if not is_consequence(match)]


def _weigh(match: _Match, facts: Facts) -> None:
    when = match.entry.when
    another_time = facts.trained is not None and when and (when == "training") != facts.trained
    # If another process failed first, this error may be a consequence.
    another_process = facts.first_role and match.role and match.role != facts.first_role
    if not match.facts:
        match.confidence = match.confidence.lowered(bool(another_time) + bool(another_process))


def _rank(match: _Match, facts: Facts) -> tuple[int, int, int, float]:
    general = 1 if "*" in match.entry.follows else 0
    elsewhere = 1 if facts.first_role and match.role != facts.first_role else 0
    return match.confidence.rank, general, elsewhere, match.at


def _diagnosis(match: _Match) -> Diagnosis:
    entry, values = match.entry, match.values
    changes = tuple(replace(change, value=entry.filled(change.value, values)) for change in entry.changes)
    return Diagnosis(
        entry.id,
        entry.title,
        entry.filled(entry.cause, values),
        entry.filled(entry.fix, values),
        match.confidence,
        tuple(match.lines),
        tuple(match.facts),
        values,
        changes,
    )
