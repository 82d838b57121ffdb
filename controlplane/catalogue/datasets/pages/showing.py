"""Template contexts of a version's pages."""

import json
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils import timezone

from controlplane.catalogue.datasets import archiving, storing
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.pages import plots, problem_pages
from controlplane.catalogue.datasets.pages.lineage import lineage
from controlplane.catalogue.datasets.pages.mapping_forms import MappingForm
from controlplane.catalogue.datasets.reader.columns.mapping import COLUMN_FIELDS
from controlplane.catalogue.datasets.reader.columns.transforms import CUSTOM, TRANSFORMS
from controlplane.catalogue.datasets.reader.versions.filtering import FilterError, RowFilter
from controlplane.catalogue.datasets.reader.versions.hints import hints as make_hints
from controlplane.catalogue.datasets.sources import HubSource
from controlplane.catalogue.datasets.verdict import verdict
from controlplane.catalogue.datasets.version_facts import facts
from controlplane.catalogue.datasets.work_queue import progress
from controlplane.catalogue.hardware import inventory
from controlplane.catalogue.hardware.models import Host

CHECK, IMPORT = "check", "import"
"""The two reports of a version: the check of its file, and its import."""
STAGES = {
    "waiting": "Waiting for the background worker",
    "starting": "Starting",
    "fetching": "Fetching from the hub",
    "copying": "Copying the files",
    "making": "Generating the tasks",
    "joining": "Joining the parts",
    "first pass": "First pass: checking every row",
    "second pass": "Second pass: checking code and duplicates",
    "importing": "Mapping the rows",
    "writing": "Writing the rows",
}
MAX_RAW_COLUMNS = 24
"""Maximum columns in the table of the file's first rows; the others are only counted."""
MAX_CELL_CHARACTERS = 300


@dataclass(frozen=True)
class SizeGuide:
    """Rule of thumb for small models: what datasets of a size are good for, and what training on them takes."""

    minimum: int
    maximum: int | None
    """Exclusive upper bound; None for no bound."""
    time: str
    memory: str
    use: str

    def includes(self, rows: int) -> bool:
        return self.minimum <= rows and (self.maximum is None or rows < self.maximum)


GUIDE = (
    SizeGuide(1_000, 5_000, "1–3 hours", "16 GB and more", "trying things out"),
    SizeGuide(10_000, 50_000, "6–24 hours", "24 GB and more", "small training runs"),
    SizeGuide(50_000, 100_000, "1–3 days", "40 GB and more", "production training"),
    SizeGuide(100_000, None, "3 days and more", "48 GB and more", "large training runs"),
)
"""Time on one GPU and GPU memory by number of rows; there is no entry from 5,000 to 10,000 rows."""


def version_context(version: DatasetVersion) -> dict[str, Any]:
    """Build the context that every page of a version needs for its frame and its verdict."""
    report = version.report
    mapped = report.get("mapped") or {}
    at_work = version.status in DatasetVersion.AT_WORK
    return {
        "version": version,
        "stored": storing.stored(version),
        "dataset": version.dataset,
        "at_work": at_work,
        "report": report,
        "mapped": mapped,
        "failed": _file_error(mapped) or _file_error(report),
        "problem_count": problem_pages.count(report),
        "mapped_count": problem_pages.count(mapped),
        "error_count": problem_pages.errors(report),
        "note_count": problem_pages.count(report) - problem_pages.errors(report),
        "broken_rows": report.get("broken_rows", report.get("bad_rows", 0)),  # older reports have one kind only
        "unfit_rows": report.get("unfit_rows", 0),
        "mapped_unfit": _unfit_row_count(mapped),
        "mapped_errors": problem_pages.errors(mapped),
        "training_rows": version.rows - version.validation_rows,
        "fits_not": bool(mapped) and version.status == DatasetVersion.NEEDS_MAPPING,
        "may_leave_out": may_leave_out(version),
        "source": source(version),
        "is_the_whole_dataset": archiving.is_the_whole_dataset(version),
        "undeletable": archiving.refusal(version),
    }


def progress_context(version: DatasetVersion) -> dict[str, Any]:
    state = progress(version)
    stage = state.stage if state else ""
    return {"progress": state, "stage": STAGES.get(stage, stage.replace("_", " ").capitalize())}


def overview(version: DatasetVersion, form: MappingForm | None = None) -> dict[str, Any]:
    """Build the context of the version's main page, in any of its states."""
    context = version_context(version)
    report, mapped = context["report"], context["mapped"]
    context |= {
        "versions": version.dataset.versions.defer("report"),
        "lineage": lineage(version),
        **raw_rows(report.get("preview") or []),
    }
    if context["at_work"]:
        return context | progress_context(version)
    context["verdict"] = verdict(version, context)
    if version.status == DatasetVersion.READY:
        context |= _ready_context(version, mapped)
        return context | {"facts": facts(version, context)}
    context["groups"] = problem_pages.groups(report)
    context["mapped_groups"] = problem_pages.groups(mapped)
    if version.status == DatasetVersion.NEEDS_MAPPING:
        context |= mapping_context(version, form)
    return context


def mapping_context(version: DatasetVersion, form: MappingForm | None = None) -> dict[str, Any]:
    report = version.report
    return {
        "form": form or MappingForm(version, initial=MappingForm.initial_of(version)),
        "recognised": report.get("recognised") or {},
        "repeated": (report.get("duplicates") or {}).get("exact", 0),
        "models": _reported_models(),
        "functions": _functions(),
    }


def _functions() -> list[tuple[str, str]]:
    """List (version, code) of all saved functions, each with the newest version that uses it."""
    by_code: dict[str, str] = {}
    versions = DatasetVersion.objects.filter(mapping__transform=CUSTOM).select_related("dataset").defer("report")
    for version in versions.order_by("-created_at"):
        by_code.setdefault(version.mapping.get("code", ""), str(version))
    return [(name, code) for code, name in by_code.items()]


def _reported_models() -> list[str]:
    now = timezone.now()
    hosts = [host for host in Host.objects.all() if host.is_fresh(now)]
    return sorted({model for host in hosts for model in inventory.clean(host.inventory).get("models") or ()})


def may_leave_out(version: DatasetVersion) -> bool:
    """Return whether a user may import the version without the rows that don't fit its mapping, because other rows
    fit."""
    mapped = version.report.get("mapped") or {}
    has_fitting_rows = bool(_unfit_row_count(mapped) and not mapped.get("gave_up") and not _file_error(mapped))
    return has_fitting_rows and version.status == DatasetVersion.NEEDS_MAPPING


def _unfit_row_count(mapped: dict[str, Any]) -> int:
    return int(mapped.get("unfit_rows", mapped.get("bad_rows")) or 0)


def source(version: DatasetVersion) -> dict[str, str]:
    """Describe the origin of the rows as {"kind", "text"}, for some kinds with a "revision" or a reason "why"."""
    details = version.source or {}
    if version.source_kind == DatasetVersion.HUB:
        revision = str(details.get("commit") or details.get("revision") or "")
        fields = {name: details[name] for name in ("id", "config", "split", "revision") if details.get(name)}
        try:
            title = HubSource(**fields).title
        except (TypeError, ValueError):
            title = str(details.get("id", ""))
        return {"kind": "Hugging Face", "text": title, "revision": revision[:12]}
    if version.source_kind == DatasetVersion.PATH:
        return {"kind": "a path on the server", "text": str(details.get("path", ""))}
    if version.source_kind == DatasetVersion.TASKS:
        return {"kind": "reasoning-gym", "text": version.file_name, "revision": str(details.get("version", ""))}
    if version.source_kind == DatasetVersion.DERIVED:
        filter_text = filter_sentence(details.get("filter") or {})
        return {"kind": "a filter", "text": filter_text, "why": str(details.get("why", ""))}
    return {"kind": "an upload", "text": version.file_name}


def filter_sentence(filter_: dict[str, Any]) -> str:
    try:
        return RowFilter.from_dict(filter_).sentence() or "all rows"
    except FilterError:
        return "a filter that this version of the product can't read"


def raw_rows(preview: list[Any]) -> dict[str, Any]:
    """Return the column names and cells of the file's first rows before mapping; of wide files, the first columns."""
    rows = [row for row in preview if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = names[:MAX_RAW_COLUMNS]
    return {
        "raw_columns": columns,
        "raw_more": len(names) - len(columns),
        "raw_cells": [[cell(row.get(name, "")) for name in columns] for row in rows],
    }


def cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[:MAX_CELL_CHARACTERS] + "…"


def shown_row(version: DatasetVersion, row: dict[str, Any]) -> dict[str, Any]:
    """Return a canonical row with its address, difficulty, tags and metadata pairs for templates."""
    metadata = row.get("metadata") or {}
    difficulty, tags = metadata.get("difficulty"), metadata.get("tags")
    tag_names = [str(tag) for tag in (tags if isinstance(tags, list) else [tags]) if tag not in (None, "")]
    return row | {
        "address": reverse("dataset_row", args=[version.dataset_id, version.number, row.get("row_id", 0)]),
        "marks": [] if difficulty in (None, "") else [str(difficulty)],
        "tag_names": tag_names[:8],
        "pairs": [(name, pretty(value)) for name, value in metadata.items()],
    }


def pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def mapping_facts(version: DatasetVersion) -> list[tuple[str, str, bool]]:
    """List the facts of the mapping as (label, value, whether the value is shown as code)."""
    mapping = version.mapping or {}
    transform = TRANSFORMS.get(mapping.get("transform", "columns"))
    facts = [("Transform", transform.title if transform else str(mapping.get("transform", "")), False)]
    facts += [
        (name.replace("_", " ").capitalize(), str(mapping[name]), True)
        for name in (*COLUMN_FIELDS, "answer_after", "code")
        if mapping.get(name)
    ]
    if mapping.get("one_per_turn"):
        facts.append(("Turns", "one prompt per turn", False))
    prompt_format = "chat messages" if mapping.get("chat", True) else "plain text"
    facts.append(("Prompt becomes", prompt_format, False))
    if mapping.get("drop_duplicates"):
        facts.append(("Duplicates", "dropped", False))
    if mapping.get("leave_out") or (version.report.get("mapped") or {}).get("bad_rows"):
        facts.append(("Bad rows", "dropped", False))
    return facts


def _ready_context(version: DatasetVersion, mapped: dict[str, Any]) -> dict[str, Any]:
    statistics = mapped.get("statistics") or {}
    rows = statistics.get("rows") or version.rows
    hints = mapped.get("hints")
    if hints is None and statistics:
        hints = make_hints(statistics, token_limit=version.token_limit)
    return {
        "statistics": statistics,
        "histograms": plots.histograms(statistics),
        "difficulty": plots.name_shares(statistics.get("difficulty"), rows),
        "tags": plots.name_shares(statistics.get("tags"), rows),
        "counted": _property_shares(statistics, rows),
        "hints": hints or [],
        "sizes": [{"size": size, "here": size.includes(version.rows)} for size in GUIDE],
        "size_sentence": size_sentence(version.rows),
        "mapping_facts": mapping_facts(version),
        "tokenizer": Tokenizer.objects.filter(pk=version.tokenizer).first() if version.tokenizer else None,
        "first_rows": [shown_row(version, row) for row in (mapped.get("preview") or [])[:3]],
    }


def size_sentence(rows: int) -> str:
    """Describe in a sentence what the guide says about this number of rows."""
    for guide in GUIDE:
        if guide.includes(rows):
            return f"Training usually takes {guide.time} and {guide.memory} of GPU memory. Good for {guide.use}."
    if rows < GUIDE[0].minimum:
        return "Fewer than in the guide: enough to see that everything works, and for narrow tasks."
    return "Between trying things out (1–3 hours, 16 GB) and small training runs (6–24 hours, 24 GB)."


def _property_shares(statistics: dict[str, Any], rows: int) -> list[plots.Share]:
    labels = (
        ("with an answer", "with_answer"),
        ("with tests", "with_tests"),
        ("code", "code"),
        ("repeated prompts", "repeated"),
        ("repeated with another answer", "ambiguous"),
        ("very short prompts", "short_prompts"),
        ("in the validation split", "validation"),
    )
    counts = [(label, statistics[name]) for label, name in labels if isinstance(statistics.get(name), int)]
    return [
        plots.Share(label, count, count / max(1, rows), round(100 * count / max(1, rows), 2)) for label, count in counts
    ]


def _file_error(report: dict[str, Any]) -> dict[str, str] | None:
    file_error = report.get("file_error")
    if isinstance(file_error, dict):
        return file_error
    return {"kind": "", "message": str(file_error), "advice": ""} if file_error else None
