"""Judgement of the log lines that match entries of the catalogue, and ranking of the causes by likelihood."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workers.diagnosis.catalogue import CatalogueEntry, Change, Confidence, catalogue
from workers.diagnosis.scanning import (
    MAX_LINE_BYTES,
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

MAX_EVIDENCE_LENGTH = 400
MAX_EVIDENCE = 4
MAX_SHAPES = 200_000
"""Maximum number of shapes (lines without their digits) remembered per log; beyond it, only lines that raise an error
are matched."""
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)")


@dataclass(frozen=True)
class Log:
    role: str
    path: Path


@dataclass(frozen=True)
class Facts:
    """Facts about a failed attempt in addition to its logs."""

    reason: str = ""
    exits: dict[str, int] = field(default_factory=dict)
    events: tuple[tuple[str, str], ...] = ()
    """(kind, data as JSON) of the events that may be evidence."""
    trained: bool | None = None
    """True if training had begun, None if that is unknown."""

    @property
    def first_role(self) -> str:
        """Role of the process that failed first; "" if none did."""
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
    """Evidence other than log lines, as sentences."""
    values: dict[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Report:
    diagnoses: tuple[Diagnosis, ...]
    first_errors: tuple[LogLine, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what is sent to the control plane, without the texts, which are in the catalogue."""
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
    position: float = 0.0
    is_mild: bool = False


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
        """Offset of the last matching line, by entry."""
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
                is_full = len(shapes) >= MAX_SHAPES
                result = self._match(offset, number, raw, only_raised=is_full)
                if not is_full:
                    shapes[shape] = result
            matched, progress = result
            if progress and (bar := step_of(raw)) != step:
                self._progress_at, step = offset, bar
            for id_ in matched:
                self._latest[id_] = offset

    def _match(self, offset: int, number: int, raw: bytes, *, only_raised: bool) -> tuple[list[str], bool]:
        """Match a line of a new shape. Return the ids of the entries that it matches, and whether it shows progress."""
        line = read(raw)
        if line is None or (only_raised and not line.is_raised):
            return [], is_progress(clean(raw)[0]) if len(raw) < MAX_LINE_BYTES else False
        if any(pattern.search(line.text) for pattern in catalogue().noise):
            return [], False
        position = _Position(offset, number, line)
        if self.first_error is None and line.is_raised and not line.has_metrics and not _TRACEBACK.match(line.text):
            self.first_error = self._evidence_line(position)
        matched = []
        for entry in self._entries:
            if line.has_metrics and not entry.figures:
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
            position, best = min(hits, key=lambda hit: (not hit[0].line.is_raised, hit[1].groups().count(None)))
            line, confidence = position.line, entry.confidence
            if not (line.is_raised or entry.anywhere or (line.has_metrics and entry.figures)):
                confidence = confidence.lowered(2 if line.is_mild else 1)
            if self._latest[entry.id] < self._progress_at and not line.has_metrics:
                confidence = Confidence.POSSIBLE  # the process continued after this line
            values = {name: value for name, value in best.groupdict().items() if value}
            lines = list(dict.fromkeys(self._evidence_line(hit) for hit, _ in [(position, best), *hits]))[:MAX_EVIDENCE]
            match = _Match(entry, self.log.role, confidence, lines, [], values, position.offset / size)
            match.is_mild = line.is_mild and not entry.anywhere
            self.matches[entry.id] = match

    def _is_near(self, entry: CatalogueEntry, offset: int, texts: dict[int, str]) -> bool:
        text = texts.get(offset) or texts.setdefault(offset, around(self.log.path, offset))
        return any(pattern.search(text) for pattern in entry.near)

    def _evidence_line(self, position: _Position) -> LogLine:
        return LogLine(self.log.path.name, position.number, position.line.text[:MAX_EVIDENCE_LENGTH])


def judge(logs: Sequence[Log], facts: Facts, limit: int | None = None) -> Report:
    """Diagnose a failure from the facts and the readable logs, and return the report. `limit`: the number of bytes to
    read of each log."""
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
        _adjust_confidence(match, facts)
    if any(match.confidence is not Confidence.POSSIBLE for match in matches):
        matches = [match for match in matches if not match.is_mild]
    matches = matches or _from_exits(facts)
    matches.sort(key=lambda match: _rank(match, facts))
    for match in matches[1:]:
        if match.confidence is Confidence.CERTAIN:
            match.confidence = Confidence.LIKELY  # two causes can't both be certain
    errors = tuple(scan.first_error for scan in scans if scan.first_error is not None)
    return Report(tuple(_diagnosis(match) for match in matches), errors)


def _is_written_by(entry: CatalogueEntry, role: str) -> bool:
    # A log of unknown origin may be from any process.
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
                sentences.append(_event_sentence(kind, data)[:MAX_EVIDENCE_LENGTH])
                values |= {name: value for name, value in (hit.groupdict() if hit else {}).items() if value}
    return list(dict.fromkeys(sentences))[:MAX_EVIDENCE], values


def _event_sentence(kind: str, data: str) -> str:
    value = json.loads(data)
    text = value.get("text") if isinstance(value, dict) else None
    return str(text) if text else f"Event {kind.replace('_', ' ')}: {data}"


def _from_exits(facts: Facts) -> list[_Match]:
    return [
        _Match(entry, role, Confidence.POSSIBLE, [], [f"{role} exited with {code}."], {}, 1.0)
        for role, code in facts.exits.items()
        for entry in catalogue().entries
        if code in entry.exits and not entry.reasons and _is_written_by(entry, role)
    ]


def _merged(matches: Iterable[_Match]) -> list[_Match]:
    by_id: dict[str, _Match] = {}
    for match in sorted(matches, key=lambda match: match.confidence.rank):
        first = by_id.setdefault(match.entry.id, match)
        if first is not match:
            first.lines = [*first.lines, *match.lines][:MAX_EVIDENCE]
    return list(by_id.values())


def _without_consequences(matches: list[_Match]) -> list[_Match]:
    """Return the matches without those that are consequences of another entry with at least the same confidence."""
    by_id = catalogue().by_id
    ranks = {match.entry.id: match.confidence.rank for match in matches}

    def is_consequence(match: _Match) -> bool:
        follows = match.entry.follows
        causes = [
            rank
            for id_, rank in ranks.items()
            if id_ != match.entry.id and (id_ in follows or ("*" in follows and "*" not in by_id[id_].follows))
        ]
        return any(rank <= Confidence.LIKELY.rank or rank <= match.confidence.rank for rank in causes)

    return [match for match in matches if not is_consequence(match)]


def _adjust_confidence(match: _Match, facts: Facts) -> None:
    when = match.entry.when
    is_another_time = facts.trained is not None and when and (when == "training") != facts.trained
    # If another process failed first, this error may be a consequence.
    is_another_process = facts.first_role and match.role and match.role != facts.first_role
    if not match.facts:
        match.confidence = match.confidence.lowered(bool(is_another_time) + bool(is_another_process))


def _rank(match: _Match, facts: Facts) -> tuple[int, int, int, float]:
    is_general = 1 if "*" in match.entry.follows else 0
    is_elsewhere = 1 if facts.first_role and match.role != facts.first_role else 0
    return match.confidence.rank, is_general, is_elsewhere, match.position


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
