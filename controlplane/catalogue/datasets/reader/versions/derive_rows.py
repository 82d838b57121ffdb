"""The verb `derive`: some rows of a ready version become the rows of another one.

They keep their row_id, so that it refers to the same row in runs on either version, and their part: validation rows
stay validation rows. Tokens, if the filter needs them, are counted as in the check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.mapping import normalised_prompt
from controlplane.catalogue.datasets.reader.excerpts import excerpt
from controlplane.catalogue.datasets.reader.problems import Problem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem
from controlplane.catalogue.datasets.reader.versions import canonical
from controlplane.catalogue.datasets.reader.versions.drawing import drawn
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter, matching
from controlplane.catalogue.datasets.reader.versions.find_rows import batches, open_rows, row_of
from controlplane.catalogue.datasets.reader.versions.making import AT_ONCE, make


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"parent": folder, "filter": {...}, "tokenizer": folder or None, "token_limit": n or None} -> MAPPED, which is
    also written.

    ROWS and SHOWN exist afterwards if and only if it is usable: a filter that no row passes makes no version. Raises
    FilterError.
    """
    row_filter = RowFilter.from_dict(arguments.get("filter") or {})
    parent = Path(arguments["parent"])
    tokenizer = Path(arguments["tokenizer"]) if arguments.get("tokenizer") else None
    chat = canonical.is_chat(parent / files.ROWS)
    mapped: dict[str, Any] = {"dropped_duplicates": 0, "file_error": None}
    with (
        Collector(folder / files.MAPPED_PROBLEMS) as collector,
        Duplicates(folder) as prompts,
        Duplicates(folder) as all_,
    ):

        def over_limit(row: Mapping[str, Any], tokens: int) -> None:
            message = f"The prompt has {tokens:,} tokens, more than the limit."
            text = excerpt(row["prompt"][-1]["content"][:1000].encode("utf-8", "replace"))
            collector.add(Problem(row["row_id"] + 1, "too_many_tokens", message, text))

        per_row = replace(row_filter, max_prompt_tokens=None, first=None, random=None)
        rows = _chosen(parent, per_row, ProgressFile(folder, "writing", 0))
        if row_filter.max_prompt_tokens is not None:
            try:
                renderer = _renderer(tokenizer)
            except TemplateProblem as problem:
                unknown = {"kind": "not_counted", "message": str(problem), "advice": "Choose another tokenizer."}
                return _written(folder, {"rows": 0, "usable": False, "file_error": unknown})
            rows = _short(rows, renderer, row_filter.max_prompt_tokens, chat, collector)
        if row_filter.first is not None:
            rows = islice(rows, row_filter.first)
        elif row_filter.random is not None:
            rows = drawn(rows, row_filter.random, row_filter.seed, folder)
        mapped |= make(
            folder,
            _noted(rows, prompts, all_),
            chat=chat,
            tokenizer=tokenizer,
            token_limit=arguments.get("token_limit"),
            over_limit=over_limit,
            repeated=lambda: (sum(1 for _ in prompts.found()), sum(1 for _ in all_.found())),
        )
        mapped |= collector.as_dict()
    mapped["usable"] = bool(mapped["rows"])
    if not mapped["usable"]:
        mapped["file_error"] = {"kind": "empty_file", "message": _nothing(collector), "advice": ""}
        for name in (files.ROWS, files.SHOWN, files.SHOWN_INDEX):
            (folder / name).unlink()
    return _written(folder, mapped)


def _written(folder: Path, mapped: dict[str, Any]) -> dict[str, Any]:
    draft = folder / f"{files.MAPPED}.part"
    draft.write_bytes(msgspec.json.encode(mapped))
    draft.replace(folder / files.MAPPED)
    return mapped


def _chosen(parent: Path, row_filter: RowFilter, progress: ProgressFile) -> Iterator[dict[str, Any]]:
    for at, batch in batches(open_rows(parent)):
        progress.at(0, at)
        for place in matching(batch, row_filter):
            yield row_of(batch, place)


def _renderer(tokenizer: Path | None) -> ChatRenderer:
    if tokenizer is None:
        raise TemplateProblem("The tokenizer to count with is no longer available.")
    renderer = ChatRenderer(tokenizer)
    if not renderer.counts_tokens:
        raise TemplateProblem("The chosen model has no tokenizer.json (sentencepiece's own files are not read).")
    return renderer


def _short(
    rows: Iterator[dict[str, Any]], renderer: ChatRenderer, limit: int, chat: bool, collector: Collector
) -> Iterator[dict[str, Any]]:
    """Rows with at most `most` tokens. Prompts that the template refuses can't be trained on: they are reported and
    left out."""
    while batch := list(islice(rows, AT_ONCE)):
        counts = renderer.prompt_counts([row["prompt"] for row in batch], chat=chat)
        for row, tokens in zip(batch, counts, strict=True):
            if tokens is None:
                message = "The model's chat template refuses this prompt: its tokens can't be counted. It was left out."
                collector.add(Problem(row["row_id"] + 1, "not_counted", message))
            elif tokens <= limit:
                yield row


def _nothing(collector: Collector) -> str:
    refused = collector.counts["not_counted"]
    suffix = f" {refused:,} could not be counted: the model's chat template refuses them, or it has none."
    return "No row passes this filter." + (suffix if refused else "")


def _noted(rows: Iterator[dict[str, Any]], prompts: Duplicates, whole: Duplicates) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        prompt = normalised_prompt(row["prompt"])
        prompts.add(prompt, place)
        whole.add(f"{prompt}\0{row['answer']}", place)
        yield row
