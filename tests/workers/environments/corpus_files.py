"""Corpus files as the control plane writes them, and tools that know them by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from workers.contract.run import corpora
from workers.rewards.tools import Tools, no_corpora

TITLE = "Towns v1"


def corpus_file(path: Path, documents: Sequence[tuple[str, str]], about: str = "towns") -> Path:
    titles, texts = zip(*documents, strict=True)
    columns = {"id": range(len(documents)), "title": titles, "text": texts}
    schema = pa.schema([("id", pa.int64()), ("title", pa.string()), ("text", pa.string())])
    schema = schema.with_metadata(corpora.schema_metadata(name="Towns", about=about))
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}, schema=schema), path)
    return path


def tools_with(path: Path) -> Tools:
    def no_sandbox(preload: tuple[str, ...]) -> object:
        raise AssertionError("a search needs no sandbox")

    return Tools(
        open_sandbox=no_sandbox,  # type: ignore[arg-type]
        corpus=lambda title: path if title == TITLE else no_corpora(title),
    )
