"""A failed attempt's diagnosis for the run page: the reported causes with the catalogue's sentences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from workers.contract.wire.names import EventKind
from workers.diagnosis.catalogue import CatalogueEntry, Confidence, entries
from workers.diagnosis.matching import UNEXPLAINED_ID
from workers.diagnosis.scanning import LogLine


@dataclass(frozen=True)
class ShownCause:
    id: str
    title: str
    cause: str
    fix: str
    confidence: str
    lines: list[LogLine]
    facts: list[str]
    changes: int
    """Number of fields of the New run form that the fix changes; 0 if only a person can fix the cause."""
    of_reward: bool


@dataclass(frozen=True)
class DiagnosisReport:
    causes: list[ShownCause]
    first_errors: list[LogLine]
    """The first error of each process, and the first since its last progress if that is another."""

    @property
    def is_unexplained(self) -> bool:
        """Whether the causes only say that the failure is unexplained, so that its detail says more."""
        return all(cause.id == UNEXPLAINED_ID for cause in self.causes)

    @property
    def other_errors(self) -> list[LogLine]:
        """The first errors that aren't evidence of a cause."""
        evidence = {line for cause in self.causes for line in cause.lines}
        return [line for line in self.first_errors if line not in evidence]


def of_attempt(attempt: Attempt) -> DiagnosisReport | None:
    """Return an attempt's diagnosis, or None if there is none because the host was lost or runs an older version."""
    event = _event(attempt)
    return report_of(event) if event is not None else None


def _event(attempt: Attempt) -> RunEvent | None:
    return attempt.events.filter(kind=EventKind.DIAGNOSED).order_by("-id").first()


def report_of(event: RunEvent) -> DiagnosisReport:
    """Return the report in a diagnosis event, ignoring invalid parts, since another version may have written it."""
    rows = (row for row in _list(event.data.get("diagnoses")) if isinstance(row, dict))
    return DiagnosisReport(
        [cause for row in rows if (cause := _shown_cause(row))], list(_lines(event.data.get("first_errors")))
    )


def values_of(attempt: Attempt, id_: str) -> tuple[CatalogueEntry, dict[str, str]] | None:
    """Return a catalogue entry with its pattern's values from the attempt's diagnosis, or None if it has no such
    cause."""
    event = _event(attempt)
    rows = _list(event.data.get("diagnoses")) if event is not None else []
    row = next((row for row in rows if isinstance(row, dict) and row.get("id") == id_), None)
    entry = entries().get(id_)
    return None if row is None or entry is None else (entry, _values(row))


def _shown_cause(row: Mapping[str, Any]) -> ShownCause | None:
    entry = entries().get(str(row.get("id")))
    if entry is None:  # from a newer version's catalogue
        return None
    values = _values(row)
    return ShownCause(
        entry.id,
        entry.title,
        entry.filled(entry.cause, values),
        entry.filled(entry.fix, values),
        confidence if (confidence := str(row.get("confidence"))) in set(Confidence) else Confidence.POSSIBLE,
        list(_lines(row.get("lines"))),
        [str(fact) for fact in _list(row.get("facts"))],
        sum(change.how != "profile" for change in entry.changes),
        entry.id.startswith("reward_"),
    )


def _values(row: Mapping[str, Any]) -> dict[str, str]:
    values = row.get("values")
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def _lines(rows: object) -> Iterator[LogLine]:
    for row in _list(rows):
        if isinstance(row, list) and len(row) == 3 and isinstance(row[1], int):
            yield LogLine(str(row[0]), row[1], str(row[2]))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
