"""Judgement of the log lines that match entries of the catalogue, and ranking of the causes by likelihood."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workers.diagnosis.catalogue import CatalogueEntry, Change, Confidence, catalogue
from workers.diagnosis.matching import MAX_EVIDENCE, MAX_EVIDENCE_LENGTH, Log, Match, Scan, is_written_by
from workers.diagnosis.scanning import LogLine


@dataclass(frozen=True)
class Facts:
    """Facts about a failed attempt in addition to its logs."""

    reason: str = ""
    exits: dict[str, int] = field(default_factory=dict)
    events: tuple[tuple[str, str], ...] = ()
    """(kind, data as JSON) of the events that may be evidence."""
    trained: bool | None = None
    """True if training had begun, None if that is unknown."""
    ports: frozenset[int] = frozenset()
    """Ports of the attempt's own servers; empty if they are unknown."""

    @property
    def has_failed(self) -> bool:
        """Whether the attempt is known to have failed."""
        return bool(self.reason or self.first_role)

    @property
    def first_role(self) -> str:
        """Role of the process that failed first, or "" if none did."""
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
        """Return the data for the control plane, without the texts, which are in the catalogue."""
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


def judge(logs: Sequence[Log], facts: Facts, limit: int | None = None) -> Report:
    """Diagnose a failure from the facts and the readable logs, and return the report. `limit`: the number of bytes to
    read of each log."""
    scans: list[Scan] = []
    for log in logs:
        try:
            scans.append(Scan(log, limit, has_failed=facts.has_failed))
        except OSError:
            continue
    matches = [match for scan in scans for match in scan.matches.values() if _has_right_endpoint(match, facts)]
    matches += _from_facts(facts, {match.entry.id: match for match in matches})
    matches = _without_consequences(_merged(matches))
    for match in matches:
        _adjust_confidence(match, facts)
    if any(match.confidence is not Confidence.POSSIBLE for match in matches):
        matches = [match for match in matches if not match.is_mild]
    matches = matches or _from_exits(facts)
    weak = [match for match in matches if "*" in match.entry.follows or match.is_mild]
    if all(match.confidence is Confidence.POSSIBLE for match in matches) and len(weak) == len(matches):
        unexplained = _unexplained(scans, matches)
        for match in matches if any(error.is_exception for error in unexplained) else ():
            match.is_mild |= not (match.is_exception or match.facts)
        matches = [*matches, *unexplained]
    matches.sort(key=lambda match: _rank(match, facts))
    for match in matches[1:]:
        if match.confidence is Confidence.CERTAIN:
            match.confidence = Confidence.LIKELY  # two causes can't both be certain
    return Report(tuple(map(_diagnosis, matches)), tuple(line for scan in scans for line in scan.first_errors))


def _has_right_endpoint(match: Match, facts: Facts) -> bool:
    """Return whether the port that a match names, if any, belongs to a server of the kind that its entry is about."""
    port, whose = match.values.get("port"), match.entry.endpoint
    return not (port and whose and facts.ports) or (int(port) in facts.ports) == (whose == "own")


def _from_facts(facts: Facts, matched: dict[str, Match]) -> list[Match]:
    matches = []
    for entry in catalogue().entries:
        sentences, values = _evidence_in_facts(entry, facts)
        if not sentences:
            continue
        if entry.id in matched:
            matched[entry.id].facts += sentences
            matched[entry.id].confidence = entry.confidence
        else:
            matches.append(Match(entry, "", entry.confidence, [], sentences, values, 1.0))
    return matches


def _evidence_in_facts(entry: CatalogueEntry, facts: Facts) -> tuple[list[str], dict[str, str]]:
    sentences, values = list[str](), dict[str, str]()
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


def _from_exits(facts: Facts) -> list[Match]:
    return [
        Match(entry, role, Confidence.POSSIBLE, [], [f"{role} exited with {code}."], {}, 1.0)
        for role, code in facts.exits.items()
        for entry in catalogue().entries
        if code in entry.exits and not entry.reasons and is_written_by(entry, role)
    ]


def _unexplained(scans: Iterable[Scan], matches: Sequence[Match]) -> list[Match]:
    """Return the first errors that no entry explains, as one cause that says so, if no match has them as evidence."""
    explained_lines = {line for match in matches for line in match.lines}
    unexplained = (scan.unexplained for scan in scans)
    return _merged(match for match in unexplained if match and explained_lines.isdisjoint(match.lines))


def _merged(matches: Iterable[Match]) -> list[Match]:
    by_id: dict[str, Match] = {}
    for match in sorted(matches, key=lambda match: match.confidence.rank):
        first = by_id.setdefault(match.entry.id, match)
        if first is not match:
            first.lines = [*first.lines, *match.lines][:MAX_EVIDENCE]
    return list(by_id.values())


def _without_consequences(matches: list[Match]) -> list[Match]:
    """Return the matches without consequences of another matching entry that is likely or at least as certain."""
    by_id = catalogue().by_id
    ranks = {match.entry.id: match.confidence.rank for match in matches}

    def is_consequence(match: Match) -> bool:
        follows = match.entry.follows
        weakest = max(Confidence.LIKELY.rank, match.confidence.rank)
        causes = [id_ for id_, rank in ranks.items() if id_ != match.entry.id and rank <= weakest]
        return any(id_ in follows or ("*" in follows and "*" not in by_id[id_].follows) for id_ in causes)

    return [match for match in matches if not is_consequence(match)]


def _adjust_confidence(match: Match, facts: Facts) -> None:
    when = match.entry.when
    is_another_time = facts.trained is not None and when and (when == "training") != facts.trained
    # If another process failed first, this error may be a consequence.
    is_another_process = facts.first_role and match.role and match.role != facts.first_role
    if not match.facts:
        match.confidence = match.confidence.lowered(bool(is_another_time) + bool(is_another_process))


def _rank(match: Match, facts: Facts) -> tuple[int, int, int, float]:
    is_general = (1 if "*" in match.entry.follows else 0) + 2 * match.is_mild
    is_elsewhere = 1 if facts.first_role and match.role != facts.first_role else 0
    return match.confidence.rank, is_general, is_elsewhere, match.position


def _diagnosis(match: Match) -> Diagnosis:
    entry, values = match.entry, match.values
    changes = tuple(replace(change, value=entry.filled(change.value, values)) for change in entry.changes)
    cause, fix, lines = entry.filled(entry.cause, values), entry.filled(entry.fix, values), tuple(match.lines)
    return Diagnosis(entry.id, entry.title, cause, fix, match.confidence, lines, tuple(match.facts), values, changes)
