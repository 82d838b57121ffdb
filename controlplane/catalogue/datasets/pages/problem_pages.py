"""Presents a report's problems: the first of each kind, or one kind page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import EXCERPT

FEW = 3
"""Problems per kind where all kinds are shown."""
A_PAGE = 25


@dataclass(frozen=True)
class ShownProblem:
    """A problem for the page, with its excerpt in three parts: before the location, its character, and after."""

    line: int
    column: int
    field: str
    code_line: int
    byte: int
    message: str
    before: str
    mark: str
    after: str


@dataclass(frozen=True)
class ProblemGroup:
    kind: str
    title: str
    advice: str
    level: str
    count: int
    kept: int
    """Number of these problems in the report."""
    problems: list[ShownProblem]

    @property
    def more(self) -> int:
        return self.kept - len(self.problems)


@dataclass(frozen=True)
class ProblemPage:
    group: ProblemGroup
    number: int
    last: int

    @property
    def first_shown(self) -> int:
        return (self.number - 1) * A_PAGE + 1

    @property
    def last_shown(self) -> int:
        return self.first_shown + len(self.group.problems) - 1


def groups(report: dict[str, Any], few: int = FEW) -> list[ProblemGroup]:
    """All kinds, errors before warnings, with their first problems."""
    kinds = sorted(report.get("kinds") or [], key=lambda kind: kind["level"] != "error")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for problem in report.get("problems") or []:
        by_kind.setdefault(problem["kind"], []).append(problem)
    return [_group(kind, by_kind.get(kind["kind"], []), 0, few) for kind in kinds]


def page(report: dict[str, Any], kind: str, number: int) -> ProblemPage | None:
    """The problems of one kind; None if the report has none."""
    kind_entry = next((entry for entry in report.get("kinds") or [] if entry["kind"] == kind), None)
    if kind_entry is None:
        return None
    listed = [problem for problem in report.get("problems") or [] if problem["kind"] == kind]
    last = max(1, -(-len(listed) // A_PAGE))
    number = min(max(1, number), last)
    return ProblemPage(_group(kind_entry, listed, (number - 1) * A_PAGE, A_PAGE), number, last)


def count(report: dict[str, Any]) -> int:
    """The number of problems of all kinds."""
    return sum(kind["count"] for kind in report.get("kinds") or [])


def errors(report: dict[str, Any]) -> int:
    return sum(kind["count"] for kind in report.get("kinds") or [] if kind["level"] == "error")


def _group(kind: dict[str, Any], listed: list[dict[str, Any]], start: int, many: int) -> ProblemGroup:
    views = [_shown(problem) for problem in listed[start : start + many]]
    return ProblemGroup(kind["kind"], kind["title"], kind["advice"], kind["level"], kind["count"], len(listed), views)


def _shown(problem: dict[str, Any]) -> ShownProblem:
    text = problem.get("excerpt") or ""
    place = _excerpt_position(text, problem.get("column") or 0, in_code=bool(problem.get("code_line")))
    return ShownProblem(
        line=problem.get("line") or 0,
        column=problem.get("column") or 0,
        field=problem.get("field") or "",
        code_line=problem.get("code_line") or 0,
        byte=problem.get("byte", -1),
        message=problem.get("message") or "",
        before=text if place is None else text[:place],
        mark="" if place is None else text[place : place + 1],
        after="" if place is None else text[place + 1 :],
    )


def _excerpt_position(text: str, column: int, *, in_code: bool) -> int | None:
    """The column's index in the excerpt, or None if unknown. A cut excerpt begins half its length before it."""
    if not column or not text:
        return None
    if not text.startswith("…") or in_code:
        return column - 1 if column <= len(text) else None
    passed_bytes = 0
    for place, character in enumerate(text[1:], 1):
        if passed_bytes >= EXCERPT // 2:
            return place
        passed_bytes += 1 if character == "\ufffd" else len(character.encode("utf-8", "replace"))
    return None
