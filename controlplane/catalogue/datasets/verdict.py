"""The verdict on a dataset version that has no step in progress: tone, icon, sentence and details."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.platform.templatetags.figures import sig
from controlplane.platform.templatetags.optional import count


@dataclass(frozen=True)
class DatasetVerdict:
    tone: str
    icon: str
    text: str
    details: str = ""
    may_try_again: bool = False


def verdict(version: DatasetVersion, context: Mapping[str, Any]) -> DatasetVerdict:
    """Judge a version by its pages' template context, which controlplane.catalogue.datasets.pages.showing builds."""
    if version.status == DatasetVersion.READY:
        return _ready(version, context)
    if context["failed"]:
        return _failed(version, context)
    if context["fits_not"]:
        return _unfit(context)
    return _checked(version, context)


def _ready(version: DatasetVersion, context: Mapping[str, Any]) -> DatasetVerdict:
    mapped = context["mapped"]
    split_text = ""
    if version.validation_rows:
        training, validation = sig(context["training_rows"], 12), sig(version.validation_rows, 12)
        split_text = f": {training} for training, {validation} kept for validation"
    bad_rows, duplicates = mapped.get("bad_rows"), mapped.get("dropped_duplicates")
    dropped_rows = list(filter(None, (count(bad_rows, "bad row,bad rows"), count(duplicates, "duplicate,duplicates"))))
    details = f"{' and '.join(dropped_rows)} dropped." if dropped_rows else ""
    rows = _rows(version)
    if version.archived_at:
        return DatasetVerdict("soft", "archive", f"{rows}, archived{split_text}.", details)
    return DatasetVerdict("good", "circle-check", f"{rows}, ready to train on{split_text}.", details)


def _failed(version: DatasetVersion, context: Mapping[str, Any]) -> DatasetVerdict:
    file_error = context["failed"]
    opening = "This file can't be used."
    if version.may_be_tried_again:
        opening = "This step failed."
    elif context["fits_not"]:
        opening = "No rows could be imported with this mapping."
    text = f"{opening} {file_error['message']}"
    return DatasetVerdict("bad", "circle-x", text, file_error.get("advice") or "", version.may_be_tried_again)


def _unfit(context: Mapping[str, Any]) -> DatasetVerdict:
    unfit_rows = context["mapped_unfit"]
    verb, rows = ("does not", "this row") if unfit_rows == 1 else ("do not", "these rows")
    text = f"{sig(unfit_rows, 12)} of {sig(context['report'].get('rows'), 12)} rows {verb} fit this mapping."
    return DatasetVerdict(
        "bad", "circle-alert", text, f"Nothing was imported. Change the mapping, or continue without {rows}."
    )


def _checked(version: DatasetVersion, context: Mapping[str, Any]) -> DatasetVerdict:
    report, errors = context["report"], context["error_count"]
    outcome = "no problem"
    if errors:
        outcome = f"{count(errors, 'problem,problems')} in {count(report.get('bad_rows'), 'row,rows') or '0 rows'}"
    notes = count(context["note_count"], "note,notes")
    text = f"{_rows(version)}, {outcome}{f', {notes}' if notes else ''}."
    details = " ".join(line for line in _details(version, context) if line)
    if version.status == DatasetVersion.INVALID:
        return DatasetVerdict("bad", "circle-x", text, details)
    return DatasetVerdict("warn", "columns-3", text, details)


def _details(version: DatasetVersion, context: Mapping[str, Any]) -> list[str]:
    report, broken_rows, unfit_rows = context["report"], context["broken_rows"], context["unfit_rows"]
    lines = []
    if report.get("gave_up"):
        line = sig(report.get("lines"), 12)
        lines.append(f"Checking stopped at line {line}: too many unreadable rows. Is this the right file format?")
    if version.status != DatasetVersion.NEEDS_MAPPING:
        return (
            lines if version.usable_without_bad_rows else [*lines, "Correct the file and upload it as a new version."]
        )
    if broken_rows:
        number = f"{sig(broken_rows, 12)} " if unfit_rows else ""
        lines.append(f"The {number}bad {'row is' if broken_rows == 1 else 'rows are'} left out.")
    if unfit_rows:
        rows = count(unfit_rows, "row does not,rows do not")
        lines.append(f"{rows} fit the proposed mapping; another mapping may.")
    return [*lines, "Map the columns to finish."]


def _rows(version: DatasetVersion) -> str:
    return f"{sig(version.rows, 12)} row{'' if version.rows == 1 else 's'}"
