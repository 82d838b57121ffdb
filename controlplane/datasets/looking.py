"""Rows for a page: of a ready version by position or by filter, one in full, and examples of what a mapping makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.datasets import reader_process
from controlplane.datasets.deriving import as_filter
from controlplane.datasets.errors import DatasetError
from controlplane.datasets.models import DatasetVersion, Tokenizer
from controlplane.datasets.reader import shown
from controlplane.datasets.reader.filtering import RowFilter
from controlplane.datasets.reader.mapping import ColumnMapping

PAGE = 50


def look(
    version: DatasetVersion, wanted: RowFilter | Mapping[str, Any] | None = None, after: int = 0, limit: int = PAGE
) -> dict[str, Any]:
    """{"rows": short rows with their "position", "next": where the next page begins, or None, "looked_at"}.

    Without a filter no process is started. Raises DatasetError.
    """
    _need_rows(version)
    asked = as_filter(wanted)
    if asked:
        given = {"filter": asked.as_dict(), "after": after, "limit": limit}
        found: dict[str, Any] = reader_process.ask(version.folder, "look", given)
        return found
    try:
        rows = [
            {"position": after + place, **row} for place, row in enumerate(shown.page(version.folder, after, limit))
        ]
    except OSError as error:
        raise DatasetError("The rows of this version can't be read on the server.") from error
    end = after + len(rows)
    return {"rows": rows, "next": end if end < version.rows else None, "looked_at": len(rows)}


def count(version: DatasetVersion, wanted: RowFilter | Mapping[str, Any]) -> int:
    """How many rows a filter means. Raises DatasetError."""
    _need_rows(version)
    asked = as_filter(wanted)
    if not asked:
        return version.rows
    given = {"filter": asked.as_dict(), "count": True}
    return int(reader_process.ask(version.folder, "look", given)["count"])


def row(version: DatasetVersion, row_id: int) -> dict[str, Any] | None:
    """One row in full; None: there is none of this id. Raises DatasetError."""
    _need_rows(version)
    found: dict[str, Any] | None = reader_process.ask(version.folder, "look", {"row_id": row_id})["row"]
    return found


def exact(version: DatasetVersion, row_ids: Sequence[int], most_bytes: int) -> dict[str, Any]:
    """{"rows": those of these ids as they are on the disk, "chat": whether prompts are messages, "left_out": how many
    were too large for `most_bytes` in all}. One process, however many. Raises DatasetError."""
    _need_rows(version)
    if not version.rows_path.exists():
        raise DatasetError("Its rows are no longer on the server.")
    found: dict[str, Any] = reader_process.ask(
        version.folder, "look", {"exact": sorted(set(row_ids)), "bytes": most_bytes}
    )
    return found


def render_example(
    version: DatasetVersion, mapping: ColumnMapping, tokenizer: str = "", rows: Sequence[Any] | None = None
) -> dict[str, Any]:
    """{"rows": what the mapping makes of the file's first rows (or of `rows`), "problem": of the tokenizer}.

    `tokenizer`: a Tokenizer's sha256; the exact text and its tokens are told with it. Raises DatasetError.
    """
    known = Tokenizer.objects.filter(pk=tokenizer).first() if tokenizer else None
    if tokenizer and known is None:
        raise DatasetError("This tokenizer is no longer available. Choose another one.")
    given = {
        "mapping": mapping.as_dict(),
        "rows": None if rows is None else list(rows),  # None: the first ones of the file, in full
        "tokenizer": str(known.folder) if known else None,
    }
    found: dict[str, Any] = reader_process.ask(version.folder, "render", given)
    return found


def _need_rows(version: DatasetVersion) -> None:
    if version.status != DatasetVersion.READY:
        raise DatasetError("This version has no rows yet.")
