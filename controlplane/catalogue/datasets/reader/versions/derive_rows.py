"""The verb `derive`, which writes some rows of a ready version as another version.

Rows keep their split and their row_id, which therefore means the same row in runs on both versions. If the filter needs
tokens, they are counted as in the import.
"""

import heapq
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.problems import DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter, matching
from controlplane.catalogue.datasets.reader.versions.find_rows import batches, open_rows, row_of
from controlplane.catalogue.datasets.reader.versions.writing import TOKEN_BATCH, write_version
from workers.contract.run.dataset import chat_in


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Derive a version: {"parent": folder, "filter": {...}, "tokenizer": folder or None, "token_limit": n or None} ->
    MAPPED, which is also written.

    ROWS and SHOWN exist afterwards only if the version is usable; it isn't if no row passes the filter or tokens can't
    be counted. Raises FilterError if the filter is invalid.
    """
    row_filter = RowFilter.from_dict(arguments.get("filter") or {})
    tokenizer = Path(arguments["tokenizer"]) if arguments.get("tokenizer") else None
    parent = open_rows(Path(arguments["parent"]))
    chat = chat_in(parent.schema_arrow.metadata)
    mapped: dict[str, Any] = {"dropped_duplicates": 0, "file_error": None}
    with Collector(folder / files.MAPPED_PROBLEMS) as collector:
        per_row = replace(row_filter, max_prompt_tokens=None, first=None, random=None)
        rows = _matching_rows(parent, per_row, ProgressFile(folder, "writing", 0))
        if row_filter.max_prompt_tokens is not None:
            try:
                renderer = ChatRenderer.with_tokenizer(tokenizer)
            except TemplateProblem as problem:
                file_error = FileProblem("not_counted", str(problem), "Choose another tokenizer.").as_dict()
                return files.write_result(
                    folder, files.MAPPED_FILE, {"rows": 0, "usable": False, "file_error": file_error}
                )
            rows = _within_limit(rows, renderer, row_filter.max_prompt_tokens, chat, collector)
        if row_filter.first is not None:
            rows = islice(rows, row_filter.first)
        elif row_filter.random is not None:
            rows = _draw_rows(rows, row_filter.random, row_filter.seed, folder)
        limit = arguments.get("token_limit")
        mapped |= write_version(folder, rows, collector, chat=chat, tokenizer=tokenizer, token_limit=limit)
        mapped |= collector.as_dict()
    mapped["usable"] = bool(mapped["rows"])
    if not mapped["usable"]:
        mapped["file_error"] = {"kind": "empty_file", "message": _no_rows_sentence(collector), "advice": ""}
        for name in (files.ROWS, files.SHOWN_ROWS_FILE, files.SHOWN_INDEX):
            (folder / name).unlink()
    return files.write_result(folder, files.MAPPED_FILE, mapped)


def _matching_rows(parent: Any, row_filter: RowFilter, progress: ProgressFile) -> Iterator[dict[str, Any]]:
    for position, batch in batches(parent):
        progress.report(0, position)
        for index in matching(batch, row_filter):
            yield row_of(batch, index)


def _within_limit(
    rows: Iterator[dict[str, Any]], renderer: ChatRenderer, limit: int, chat: bool, collector: Collector
) -> Iterator[dict[str, Any]]:
    """Yield the rows with prompts of at most `limit` tokens. Prompts that the template refuses are reported and left
    out, since runs can't train on them."""
    while batch := list(islice(rows, TOKEN_BATCH)):
        counts = renderer.prompt_counts([row["prompt"] for row in batch], chat=chat)
        for row, tokens in zip(batch, counts, strict=True):
            if tokens is None:
                message = "The row was left out, since the model's chat template refuses its prompt."
                collector.add(DataProblem(row["row_id"] + 1, "not_counted", message))
            elif tokens <= limit:
                yield row


def _draw_rows(rows: Iterable[dict[str, Any]], number: int, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield `number` of the rows, drawn at random and in their original order; all rows if there are no more.

    The draw depends only on the seed and the row ids: it is the same on every machine, and a smaller draw is a subset
    of a larger one. Candidates are kept in an unnamed file in `folder`, so only one number per drawn row is in memory.
    """
    negative_keys: list[int] = []
    with tempfile.TemporaryFile(dir=folder) as candidates:
        for row in rows:
            key = _key(row["row_id"], seed)
            if len(negative_keys) < number:
                heapq.heappush(negative_keys, -key)
            elif key < -negative_keys[0]:
                heapq.heapreplace(negative_keys, -key)
            else:
                continue
            candidates.write(msgspec.json.encode(row) + b"\n")
        candidates.seek(0)
        for row in map(msgspec.json.decode, candidates):
            if _key(row["row_id"], seed) <= -negative_keys[0]:
                yield row


def _key(row_id: int, seed: int) -> int:
    """Return a number that orders rows at random; it contains the row id, so it is unique."""
    digest = blake2b(f"{seed} {row_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") << 64 | row_id


def _no_rows_sentence(collector: Collector) -> str:
    uncounted = collector.counts["not_counted"]
    suffix = f" The tokens of {uncounted:,} rows can't be counted: the model has no chat template, or it refuses them."
    return "No row passes this filter." + (suffix if uncounted else "")
