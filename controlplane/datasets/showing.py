"""What the page of a version shows: the verdict first, then its evidence."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.datasets.forms import MappingForm
from controlplane.datasets.mapping import ColumnMapping, RowProblem, canonical
from controlplane.datasets.models import DatasetVersion

LATE_AFTER = timedelta(seconds=10)


def shown_version(version: DatasetVersion, form: MappingForm | None = None) -> dict[str, Any]:
    """The template's context."""
    report = version.report
    mapped = report.get("mapped") or {}
    needs_mapping = version.status == DatasetVersion.NEEDS_MAPPING
    # The problems of the step that people look at: the file's own lines, or the rows the mapping doesn't fit.
    source = mapped if mapped and version.status != DatasetVersion.INVALID else report
    context = {
        "version": version,
        "dataset": version.dataset,
        "versions": version.dataset.versions.all(),
        "runs": version.runs.all()[:20],
        "checking": version.status == DatasetVersion.CHECKING,
        "mapped": mapped,
        "late": _late(version),
        "problems": grouped(source),
        "problem_count": source.get("error_count", 0),
        "columns": _table(report.get("preview", [])),
        "table": _cells(report.get("preview", [])),
        "ready_rows": [_rendered(row) for row in mapped.get("preview", [])] if not needs_mapping else [],
        "lengths": [_chart(name, found) for name, found in mapped.get("lengths", {}).items()],
    }
    if needs_mapping:
        mapping = ColumnMapping.from_dict(version.mapping or report.get("guess", {}) or {"prompt": ""})
        context["form"] = form or MappingForm(version, initial=MappingForm.initial_of(mapping))
        context["example"] = example_of(version, mapping)
    return context


def example_of(version: DatasetVersion, mapping: ColumnMapping) -> dict[str, Any]:
    """The first row that the mapping fits, or why it doesn't fit the first one."""
    problem = ""
    for row in version.report.get("preview", []):
        try:
            return _rendered(canonical(row, mapping))
        except RowProblem as found:
            problem = problem or str(found)
    return {"problem": problem or "There is no row to show."}


def grouped(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Problems by kind, the most frequent kind first."""
    shown: dict[str, list[dict[str, Any]]] = {}
    for problem in report.get("errors", []):
        shown.setdefault(problem["kind"], []).append(problem)
    return [
        {"kind": kind, "count": count, "shown": shown.get(kind, [])} for kind, count in report.get("kinds", {}).items()
    ]


def _rendered(row: dict[str, Any]) -> dict[str, Any]:
    prompt = row["prompt"]
    messages = [{"role": "", "content": prompt}] if isinstance(prompt, str) else prompt
    more = {k: v for k, v in row.items() if k not in ("row", "prompt", "answer")}
    return {"messages": messages, "answer": row["answer"], "more": more}


def _late(version: DatasetVersion) -> timedelta | None:
    """How long the check has waited for a worker, once that is longer than it should be."""
    if version.check_started_at or not version.queued_at:
        return None
    waited = timezone.now() - version.queued_at
    return waited if waited > LATE_AFTER else None


def _table(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))[:12]


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    names = _table(rows)
    return [[_cell(row.get(name, "")) for name in names] for row in rows]


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else text[:300] + "…"


def _chart(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Bars as attributes of SVG rectangles: 0 to 100 wide, 0 to 40 high."""
    bins = found["bins"]
    width, most = 100 / len(bins), max(bins) or 1
    bars = [
        {"x": round(i * width, 2), "width": round(width * 0.86, 2), "height": round(40 * n / most, 2), "count": n}
        for i, n in enumerate(bins)
    ]
    return {"name": name, "bars": [{**b, "y": round(40 - b["height"], 2)} for b in bars], **found}
