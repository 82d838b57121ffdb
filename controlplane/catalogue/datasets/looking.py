"""Reads rows for pages: of a ready version by position or filter, one in full, and previews of a mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.catalogue.datasets import reader_process, storing
from controlplane.catalogue.datasets.deriving import as_filter
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.versions import shown
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter

PAGE = 50


def look(
    version: DatasetVersion, row_filter: RowFilter | Mapping[str, Any] | None = None, after: int = 0, limit: int = PAGE
) -> dict[str, Any]:
    """One page of rows: {"rows": short rows with their "position", "next": the next page's start or None, "looked_at":
    number of rows that were searched}.

    Only a filter starts the reader process. Raises DatasetError.
    """
    _need_rows(version)
    filter_ = as_filter(row_filter)
    if filter_:
        arguments = {"filter": filter_.as_dict(), "after": after, "limit": limit}
        result: dict[str, Any] = reader_process.ask(version.folder, "look", arguments)
        return result
    try:
        rows = [
            {"position": after + place, **row} for place, row in enumerate(shown.page(version.folder, after, limit))
        ]
    except OSError as error:
        raise DatasetError("The rows of this version can't be read on the server.") from error
    end = after + len(rows)
    return {"rows": rows, "next": end if end < version.rows else None, "looked_at": len(rows)}


def count(version: DatasetVersion, row_filter: RowFilter | Mapping[str, Any]) -> int:
    """The number of rows that pass a filter. Raises DatasetError."""
    _need_rows(version)
    filter_ = as_filter(row_filter)
    if not filter_:
        return version.rows
    arguments = {"filter": filter_.as_dict(), "count": True}
    return int(reader_process.ask(version.folder, "look", arguments)["count"])


def row(version: DatasetVersion, row_id: int, row_filter: RowFilter | None = None) -> dict[str, Any]:
    """One row in full: {"row": the row or None, "before" and "after": the ids of its neighbors among the rows that pass
    the filter, or None}. Raises DatasetError."""
    _need_rows(version)
    arguments = {"row_id": row_id, "filter": as_filter(row_filter).as_dict()}
    result: dict[str, Any] = reader_process.ask(version.folder, "look", arguments)
    return result


def exact(version: DatasetVersion, row_ids: Sequence[int], most_bytes: int) -> dict[str, Any]:
    """Many unmodified rows from one process: {"rows": those of these ids, "chat": whether prompts are messages,
    "left_out": how many didn't fit into `most_bytes`}. Raises DatasetError."""
    _need_rows(version)
    if not version.rows_path.exists():
        raise DatasetError("Its rows are no longer on the server.")
    result: dict[str, Any] = reader_process.ask(
        version.folder, "look", {"exact": sorted(set(row_ids)), "bytes": most_bytes}
    )
    return result


def render_example(
    version: DatasetVersion, mapping: ColumnMapping, tokenizer: str = "", rows: Sequence[Any] | None = None
) -> dict[str, Any]:
    """A mapping's result: {"rows": the mapped first rows of the file (or `rows`), "problem": of the tokenizer}.

    `tokenizer`: a Tokenizer's sha256, for the exact text and its token count. Raises DatasetError.
    """
    stored = Tokenizer.objects.filter(pk=tokenizer).first() if tokenizer else None
    if tokenizer and stored is None:
        raise DatasetError("This tokenizer is no longer available. Choose another one.")
    arguments = {
        "mapping": mapping.as_dict(),
        "rows": None if rows is None else list(rows),  # None: the file's first rows, in full
        "tokenizer": str(stored.folder) if stored else None,
        **reader_process.backend_for(mapping),
    }
    result: dict[str, Any] = reader_process.ask(version.folder, "render", arguments)
    return result


def _need_rows(version: DatasetVersion) -> None:
    if version.status != DatasetVersion.READY:
        raise DatasetError("This version has no rows yet.")
    if not version.rows_path.exists() and storing.is_being_fetched(version):
        raise DatasetError("Its rows are being fetched from the artifact store. Try again in a minute.")
