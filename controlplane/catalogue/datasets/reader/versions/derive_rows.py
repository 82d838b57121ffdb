"""The verb `derive`: writes some rows of a ready version as another version.

Rows keep their row_id, so that it refers to the same row in runs on either version, and their split: validation rows
stay validation rows. Tokens, if the filter needs them, are counted as in the check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.mapping import normalised_prompt
from controlplane.catalogue.datasets.reader.excerpts import excerpt
from controlplane.catalogue.datasets.reader.problems import DataProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem
from controlplane.catalogue.datasets.reader.versions import canonical
from controlplane.catalogue.datasets.reader.versions.drawing import drawn
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter, matching
from controlplane.catalogue.datasets.reader.versions.find_rows import batches, open_rows, row_of
from controlplane.catalogue.datasets.reader.versions.writing import TOKEN_BATCH, write_version


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"parent": folder, "filter": {...}, "tokenizer": folder or None, "token_limit": n or None} -> MAPPED, which is
    also written.

    ROWS and SHOWN exist afterwards only if the version is usable; it isn't if no row passes the filter. Raises
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
            collector.add(DataProblem(row["row_id"] + 1, "too_many_tokens", message, text))

        per_row = replace(row_filter, max_prompt_tokens=None, first=None, random=None)
        rows = _matching_rows(parent, per_row, ProgressFile(folder, "writing", 0))
        if row_filter.max_prompt_tokens is not None:
            try:
                renderer = ChatRenderer.that_counts(tokenizer)
            except TemplateProblem as problem:
                unknown = {"kind": "not_counted", "message": str(problem), "advice": "Choose another tokenizer."}
                return files.write_answer(folder, files.MAPPED, {"rows": 0, "usable": False, "file_error": unknown})
            rows = _within_limit(rows, renderer, row_filter.max_prompt_tokens, chat, collector)
        if row_filter.first is not None:
            rows = islice(rows, row_filter.first)
        elif row_filter.random is not None:
            rows = drawn(rows, row_filter.random, row_filter.seed, folder)
        mapped |= write_version(
            folder,
            _with_duplicates(rows, prompts, all_),
            chat=chat,
            tokenizer=tokenizer,
            token_limit=arguments.get("token_limit"),
            over_limit=over_limit,
            repeated=lambda: (sum(1 for _ in prompts.repeats()), sum(1 for _ in all_.repeats())),
        )
        mapped |= collector.as_dict()
    mapped["usable"] = bool(mapped["rows"])
    if not mapped["usable"]:
        mapped["file_error"] = {"kind": "empty_file", "message": _no_rows_sentence(collector), "advice": ""}
        for name in (files.ROWS, files.SHOWN, files.SHOWN_INDEX):
            (folder / name).unlink()
    return files.write_answer(folder, files.MAPPED, mapped)


def _matching_rows(parent: Path, row_filter: RowFilter, progress: ProgressFile) -> Iterator[dict[str, Any]]:
    for at, batch in batches(open_rows(parent)):
        progress.at(0, at)
        for place in matching(batch, row_filter):
            yield row_of(batch, place)


def _within_limit(
    rows: Iterator[dict[str, Any]], renderer: ChatRenderer, limit: int, chat: bool, collector: Collector
) -> Iterator[dict[str, Any]]:
    """Rows with prompts of at most `limit` tokens. Prompts that the template refuses are reported and left out, as they
    can't be trained on."""
    while batch := list(islice(rows, TOKEN_BATCH)):
        counts = renderer.prompt_counts([row["prompt"] for row in batch], chat=chat)
        for row, tokens in zip(batch, counts, strict=True):
            if tokens is None:
                message = "The model's chat template refuses this prompt: its tokens can't be counted. It was left out."
                collector.add(DataProblem(row["row_id"] + 1, "not_counted", message))
            elif tokens <= limit:
                yield row


def _no_rows_sentence(collector: Collector) -> str:
    refused = collector.counts["not_counted"]
    suffix = f" {refused:,} could not be counted: the model's chat template refuses them, or it has none."
    return "No row passes this filter." + (suffix if refused else "")


def _with_duplicates(
    rows: Iterator[dict[str, Any]], prompts: Duplicates, whole: Duplicates
) -> Iterator[dict[str, Any]]:
    """The rows; adds the keys of each one to both sets of duplicates."""
    for place, row in enumerate(rows):
        prompt = normalised_prompt(row["prompt"])
        prompts.add(prompt, place)
        whole.add(f"{prompt}\0{row['answer']}", place)
        yield row
