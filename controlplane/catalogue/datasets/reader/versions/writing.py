"""Writing of a ready version's files from a stream of its rows: ROWS, SHOWN, the statistics and the first rows."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.mapping import normalised_prompt
from controlplane.catalogue.datasets.reader.excerpts import excerpt, short
from controlplane.catalogue.datasets.reader.limits import MAX_COLUMNS
from controlplane.catalogue.datasets.reader.problems import DataProblem
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.versions.canonical import SCHEMA, RowWriter
from controlplane.catalogue.datasets.reader.versions.hints import hints
from controlplane.catalogue.datasets.reader.versions.shown import ShortRowWriter
from controlplane.catalogue.datasets.reader.versions.statistics import Statistics

PREVIEW_ROWS = 8
TOKEN_BATCH = 256
"""Number of rows whose tokens are counted together."""


def write_version(
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    collector: Collector,
    *,
    chat: bool,
    tokenizer: Path | None,
    token_limit: int | None,
) -> dict[str, Any]:
    """Write a version's files, and return the part of MAPPED about them.

    `rows` are canonical rows with their "split", and with their "line" in the file unless it is their id plus 1.
    `collector` receives the problems of prompts that exceed the token limit.
    """
    renderer = ChatRenderer(tokenizer) if tokenizer else None
    statistics_so_far, preview, columns = Statistics(), list[dict[str, Any]](), ["prompt"]
    with (
        RowWriter(folder / files.ROWS, chat=chat) as writer,
        ShortRowWriter(folder) as short_rows,
        Duplicates(folder) as prompts,
        Duplicates(folder) as answered_prompts,
    ):
        for number, (row, prompt_tokens, answer_tokens) in enumerate(_with_token_counts(rows, renderer, chat)):
            plain = {name: row[name] for name in SCHEMA.names}
            writer.add(plain)
            short_rows.add(plain)
            statistics_so_far.add(row, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)
            prompt = normalised_prompt(row["prompt"])
            prompts.add(prompt, number)
            answered_prompts.add(f"{prompt}\0{row['answer']}", number)
            _add_reward_columns(columns, row)
            if len(preview) < PREVIEW_ROWS:
                preview.append(short(plain))
            if token_limit and prompt_tokens and prompt_tokens > token_limit:
                collector.add(_over_limit(row, prompt_tokens))
        repeated, repeated_with_answer = (sum(1 for _ in keys.repeats()) for keys in (prompts, answered_prompts))
        short_rows.finish()
        sha256 = writer.finish()
    statistics = statistics_so_far.as_dict(repeated=repeated, repeated_with_answer=repeated_with_answer)
    return {
        "rows": statistics_so_far.rows,
        "validation_rows": statistics["validation"],
        "sha256": sha256,
        "columns": columns,
        "statistics": statistics,
        "hints": hints(statistics, token_limit=token_limit),
        "preview": preview,
    }


def _add_reward_columns(columns: list[str], row: Mapping[str, Any]) -> None:
    row_columns = [name for name in ("answer", "test_cases") if row[name]] + list(row["metadata"])
    columns += [name for name in row_columns if name not in columns and len(columns) < MAX_COLUMNS]


def _over_limit(row: Mapping[str, Any], tokens: int) -> DataProblem:
    start = excerpt(row["prompt"][-1]["content"][:1000].encode("utf-8", "replace"))
    message = f"The prompt has {tokens:,} tokens, more than the limit."
    return DataProblem(row.get("line", row["row_id"] + 1), "too_many_tokens", message, start)


def _with_token_counts(
    rows: Iterable[Mapping[str, Any]], renderer: ChatRenderer | None, chat: bool
) -> Iterator[tuple[Mapping[str, Any], int | None, int | None]]:
    """Yield (row, tokens of its prompt, tokens of its answer); a count is None without a tokenizer, for a prompt that
    the template refuses, and for no answer."""
    if renderer is None:
        yield from ((row, None, None) for row in rows)
        return
    remaining = iter(rows)
    while batch := list(islice(remaining, TOKEN_BATCH)):
        prompts = renderer.prompt_counts([row["prompt"] for row in batch], chat=chat)
        answers = renderer.token_counts([row["answer"] or "" for row in batch]) or ()
        for row, prompt_tokens, answer_tokens in zip_longest(batch, prompts, answers):
            yield row, prompt_tokens, answer_tokens if row["answer"] else None
