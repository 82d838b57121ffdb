"""The template contexts of a version's pages: the verdict first, then its evidence."""

from __future__ import annotations

import json
from typing import Any

from django.urls import reverse
from django.utils import timezone

from controlplane.catalogue.datasets import archiving, storing
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.pages import plots, problem_pages, sizes
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
"""The two reports of a version: on its file, and on the imported rows."""
STAGES = {
    "waiting": "Waiting for the background worker",
    "starting": "Starting",
    "fetching": "Fetching from the hub",
    "copying": "Copying the files",
    "making": "Making the tasks",
    "joining": "Joining the parts",
    "first pass": "First pass: every row is read",
    "second pass": "Second pass: code, duplicates, tokens",
    "importing": "Mapping the rows",
    "writing": "Writing the rows",
}
RAW_COLUMNS = 24
"""Columns of the file in the table of its first rows; further ones are counted."""
CELL = 300


def version_context(version: DatasetVersion) -> dict[str, Any]:
    """The context of every page of a version: its frame, its verdict and its tabs."""
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
        "broken_rows": report.get("broken_rows", report.get("bad_rows", 0)),  # older reports know one kind
        "unfit_rows": report.get("unfit_rows", 0),
        "mapped_unfit": _unfit(mapped),
        "mapped_errors": problem_pages.errors(mapped),
        "training_rows": version.rows - version.validation_rows,
        "fits_not": bool(mapped) and version.status == DatasetVersion.NEEDS_MAPPING,
        "may_leave_out": may_leave_out(version),
        "source": source(version),
        "is_the_whole_dataset": archiving.is_the_whole_dataset(version),
        "undeletable": archiving.refusal(version),
    }


def progress_context(version: DatasetVersion) -> dict[str, Any]:
    found = progress(version)
    stage = found.stage if found else ""
    return {"progress": found, "stage": STAGES.get(stage, stage.replace("_", " ").capitalize())}


def overview(version: DatasetVersion, form: MappingForm | None = None) -> dict[str, Any]:
    """The version's own page, in whatever state it is."""
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
        context |= _ready(version, mapped)
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
        "models": known_models(),
        "functions": functions(),
    }


def functions() -> list[tuple[str, str]]:
    """(a version's name, its function) of all functions that are saved, the newest version of each."""
    by_code: dict[str, str] = {}
    versions = DatasetVersion.objects.filter(mapping__transform=CUSTOM).select_related("dataset").defer("report")
    for version in versions.order_by("-created_at"):
        by_code.setdefault(version.mapping.get("code", ""), str(version))
    return [(name, code) for code, name in by_code.items()]


def known_models() -> list[str]:
    """Models that connected hosts report."""
    now = timezone.now()
    hosts = [host for host in Host.objects.all() if host.is_fresh(now)]
    return sorted({model for host in hosts for model in inventory.clean(host.inventory).get("models") or ()})


def may_leave_out(version: DatasetVersion) -> bool:
    """True if the mapping can be used for the rows that it fits, without the others."""
    mapped = version.report.get("mapped") or {}
    usable = bool(_unfit(mapped) and not mapped.get("gave_up") and not _file_error(mapped))
    return usable and version.status == DatasetVersion.NEEDS_MAPPING


def _unfit(mapped: dict[str, Any]) -> int:
    return int(mapped.get("unfit_rows", mapped.get("bad_rows")) or 0)


def source(version: DatasetVersion) -> dict[str, str]:
    """The origin of the rows: {"kind", "words", "more"}."""
    details = version.source or {}
    if version.source_kind == DatasetVersion.HUB:
        revision = str(details.get("commit") or details.get("revision") or "")
        known = {name: details[name] for name in ("id", "config", "split", "revision") if details.get(name)}
        try:
            title = HubSource(**known).title
        except (TypeError, ValueError):
            title = str(details.get("id", ""))
        return {"kind": "Hugging Face", "words": title, "more": revision[:12]}
    if version.source_kind == DatasetVersion.PATH:
        return {"kind": "a path on the server", "words": str(details.get("path", "")), "more": ""}
    if version.source_kind == DatasetVersion.TASKS:
        return {"kind": "reasoning-gym", "words": version.file_name, "more": str(details.get("version", ""))}
    if version.source_kind == DatasetVersion.DERIVED:
        words, why = filter_words(details.get("filter") or {}), str(details.get("why", ""))
        return {"kind": "a filter", "words": words, "why": why}
    return {"kind": "an upload", "words": version.file_name, "more": ""}


def filter_words(filter_: dict[str, Any]) -> str:
    try:
        return RowFilter.from_dict(filter_).sentence() or "all rows"
    except FilterError:
        return "a filter that this version of the product doesn't know"


def raw_rows(preview: list[Any]) -> dict[str, Any]:
    """The first rows of the file as they stand in it: names and cells, of a wide file the first columns."""
    rows = [row for row in preview if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = names[:RAW_COLUMNS]
    return {
        "raw_columns": columns,
        "raw_more": len(names) - len(columns),
        "raw_cells": [[cell(row.get(name, "")) for name in columns] for row in rows],
    }


def cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL else text[:CELL] + "…"


def shown_row(version: DatasetVersion, row: dict[str, Any]) -> dict[str, Any]:
    """A canonical row for templates: prompt turns, answer, tests, metadata as pairs, its own address."""
    metadata = row.get("metadata") or {}
    place = {"dataset_id": version.dataset_id, "number": version.number, "row": row.get("row_id", 0)}
    return row | {
        "address": reverse("dataset_row", kwargs=place),
        "marks": [str(metadata[name]) for name in ("difficulty",) if metadata.get(name) not in (None, "")],
        "tag_names": _tag_names(metadata.get("tags")),
        "pairs": [(name, pretty(value)) for name, value in metadata.items()],
    }


def pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def mapping_facts(version: DatasetVersion) -> list[tuple[str, str, bool]]:
    """(what, its words, whether they are names as they stand in the file)"""
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
    becomes = "chat messages" if mapping.get("chat", True) else "plain text"
    facts.append(("Prompt becomes", becomes, False))
    if mapping.get("drop_duplicates"):
        facts.append(("Duplicates", "dropped", False))
    if mapping.get("leave_out") or (version.report.get("mapped") or {}).get("bad_rows"):
        facts.append(("Bad rows", "dropped", False))
    return facts


def _ready(version: DatasetVersion, mapped: dict[str, Any]) -> dict[str, Any]:
    statistics = mapped.get("statistics") or {}
    rows = statistics.get("rows") or version.rows
    hints = mapped.get("hints")
    if hints is None and statistics:
        hints = make_hints(statistics, token_limit=version.token_limit)
    return {
        "statistics": statistics,
        "histograms": plots.histograms(statistics),
        "difficulty": plots.names(statistics.get("difficulty"), rows),
        "tags": plots.names(statistics.get("tags"), rows),
        "counted": _counted(statistics, rows),
        "hints": hints or [],
        "sizes": [{"size": size, "here": size.holds(version.rows)} for size in sizes.GUIDE],
        "size_words": sizes.place(version.rows),
        "mapping_facts": mapping_facts(version),
        "tokenizer": Tokenizer.objects.filter(pk=version.tokenizer).first() if version.tokenizer else None,
        "first_rows": [shown_row(version, row) for row in (mapped.get("preview") or [])[:3]],
    }


def _counted(statistics: dict[str, Any], rows: int) -> list[plots.Share]:
    """Counted subsets of the rows, as shares of all."""
    labels = (
        ("with an answer", "with_answer"),
        ("with tests", "with_tests"),
        ("code", "code"),
        ("repeated prompts", "repeated"),
        ("with another answer", "ambiguous"),
        ("very short prompts", "short_prompts"),
        ("kept for validation", "validation"),
    )
    counts = [(words, statistics[name]) for words, name in labels if isinstance(statistics.get(name), int)]
    return [
        plots.Share(words, count, count / max(1, rows), round(100 * count / max(1, rows), 2)) for words, count in counts
    ]


def _tag_names(tags: Any) -> list[str]:
    return [str(tag) for tag in (tags if isinstance(tags, list) else [tags]) if tag not in (None, "")][:8]


def _file_error(report: dict[str, Any]) -> dict[str, str] | None:
    """Why nothing can be said of the rows; None where nothing stood in the way."""
    found = report.get("file_error")
    if isinstance(found, dict):
        return found
    return {"kind": "", "message": str(found), "advice": ""} if found else None
