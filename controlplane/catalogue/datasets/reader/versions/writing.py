"""Writes the files of a ready version from a stream of its rows: ROWS, SHOWN, statistics and the first rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.excerpts import short
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem
from controlplane.catalogue.datasets.reader.versions import shown
from controlplane.catalogue.datasets.reader.versions.canonical import RowWriter
from controlplane.catalogue.datasets.reader.versions.hints import hints
from controlplane.catalogue.datasets.reader.versions.statistics import Statistics
from workers.contract.run.dataset import VALIDATION

PREVIEW_ROWS = 8
MOST_COLUMNS = 200
TOKEN_BATCH = 256
"""Rows whose tokens are counted together."""

OverLimit = Callable[[Mapping[str, Any], int], None]
"""Called with a row over the token limit and its number of tokens."""


def write_version(
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    chat: bool,
    tokenizer: Path | None = None,
    token_limit: int | None = None,
    over_limit: OverLimit | None = None,
    repeated: Callable[[], tuple[int, int]] = lambda: (0, 0),
) -> dict[str, Any]:
    """Write a version's files and return the part of MAPPED about them; nothing remains after an error.

    `rows`: canonical ones with their "split"; other fields are for `over_limit`, which the token limit requires.
    `repeated`: (rows with a repeated prompt, those with the same answer too), called after the last row.
    """
    figures, preview, columns = Statistics(), list[dict[str, Any]](), _Columns()
    validation = 0
    rows_shown = shown.ShortRowWriter(folder)
    try:
        with RowWriter(folder / files.ROWS, chat=chat) as writer:
            for row, prompt_tokens, answer_tokens in _counted(
                rows, ChatRenderer(tokenizer) if tokenizer else None, chat
            ):
                plain = {name: row[name] for name in writer.names}
                writer.add(plain)
                rows_shown.add(plain)
                figures.add(row, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)
                columns.add(row)
                validation += row["split"] == VALIDATION
                if len(preview) < PREVIEW_ROWS:
                    preview.append(short(plain))
                if over_limit and token_limit and prompt_tokens and prompt_tokens > token_limit:
                    over_limit(row, prompt_tokens)
            sha256 = writer.close()
        rows_shown.close()
    except BaseException:
        rows_shown.discard()
        (folder / files.ROWS).unlink(missing_ok=True)
        raise
    again, alike = repeated()
    statistics = figures.as_dict(repeated=again, repeated_alike=alike)
    return {
        "rows": figures.rows,
        "validation_rows": validation,
        "sha256": sha256,
        "columns": columns.names,
        "statistics": statistics,
        "hints": hints(statistics, token_limit=token_limit),
        "preview": preview,
    }


class _Columns:
    """The columns that rewards find in a row, in addition to those of every row."""

    def __init__(self) -> None:
        self.names = ["prompt"]

    def add(self, row: Mapping[str, Any]) -> None:
        present = [name for name in ("answer", "test_cases") if row[name]] + list(row["metadata"])
        self.names += [name for name in present if name not in self.names and len(self.names) < MOST_COLUMNS]


def _counted(
    rows: Iterable[Mapping[str, Any]], renderer: ChatRenderer | None, chat: bool
) -> Iterator[tuple[Mapping[str, Any], int | None, int | None]]:
    """(row, tokens of its prompt, tokens of its answer); None without a tokenizer, or if the template refuses it."""
    if renderer is None:
        for row in rows:
            yield row, None, None
        return
    coming = iter(rows)
    while batch := list(islice(coming, TOKEN_BATCH)):
        answers = renderer.counts([row["answer"] or "" for row in batch]) or []
        for place, row in enumerate(batch):
            yield row, _prompt_tokens(renderer, row, chat), answers[place] if answers and row["answer"] else None


def _prompt_tokens(renderer: ChatRenderer, row: Mapping[str, Any], chat: bool) -> int | None:
    try:
        return renderer.render(row["prompt"], chat=chat)[1]
    except TemplateProblem:
        return None
