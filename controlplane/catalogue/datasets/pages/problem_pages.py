"""The problems of a report for its pages: the first ones of each kind, or those of one kind page by page."""

from typing import Any

from django.core.paginator import Paginator

from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT

MAX_SHOWN_PER_KIND = 3
"""Maximum number of problems shown per kind when all kinds are listed."""
PAGE_SIZE = 25
Report = dict[str, Any]


def groups(report: Report) -> list[dict[str, Any]]:
    """List all kinds, errors before warnings, with their first problems."""
    kinds = sorted(report.get("kinds") or [], key=lambda kind: kind["level"] != "error")
    return [
        _group(kind, listed, listed[:MAX_SHOWN_PER_KIND])
        for kind in kinds
        for listed in [_problems_of_kind(report, kind["kind"])]
    ]


def page(report: Report, kind: str, number: int) -> dict[str, Any] | None:
    """Return a page of the problems of one kind as {"group", "page"}, or None if the report has none of this kind."""
    kind_entry = next((entry for entry in report.get("kinds") or [] if entry["kind"] == kind), None)
    if kind_entry is None:
        return None
    listed = _problems_of_kind(report, kind)
    problems = Paginator(listed, PAGE_SIZE).get_page(max(1, number))
    return {"group": _group(kind_entry, listed, list(problems)), "page": problems}


def count(report: Report) -> int:
    return sum(kind["count"] for kind in report.get("kinds") or [])


def errors(report: Report) -> int:
    return sum(kind["count"] for kind in report.get("kinds") or [] if kind["level"] == "error")


def _problems_of_kind(report: Report, kind: str) -> list[dict[str, Any]]:
    return [problem for problem in report.get("problems") or [] if problem["kind"] == kind]


def _group(kind: dict[str, Any], listed: list[dict[str, Any]], problems: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a kind with the `problems` to show. `listed` are all its problems in the report."""
    unshown = len(listed) - len(problems)
    return {**kind, "listed": len(listed), "unshown": unshown, "problems": [_marked(problem) for problem in problems]}


def _marked(problem: dict[str, Any]) -> dict[str, Any]:
    text, column = problem.get("excerpt") or "", problem.get("column") or 0
    index = _excerpt_index(text, column, in_code=bool(problem.get("code_line")))
    start = len(text) if index is None else index
    return {"byte": -1, **problem, "before": text[:start], "mark": text[start : start + 1], "after": text[start + 1 :]}


def _excerpt_index(text: str, column: int, *, in_code: bool) -> int | None:
    """Find a column's index in the excerpt; return None if unknown. In a truncated excerpt, it is the middle."""
    if not column or not text:
        return None
    if not text.startswith("…") or in_code:
        return column - 1 if column <= len(text) else None
    passed_bytes = 0
    for index, character in enumerate(text[1:], 1):
        if passed_bytes >= MAX_EXCERPT // 2:
            return index
        passed_bytes += 1 if character == "\ufffd" else len(character.encode("utf-8", "replace"))
    return None
