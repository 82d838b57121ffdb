"""Rows for pages: those of a ready version by position or filter, one row in full, and previews of a mapping."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.catalogue.datasets import reader_process, storing
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.versions import shown
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter

ALL_ROWS = RowFilter()


def page(version: DatasetVersion, row_filter: RowFilter = ALL_ROWS, *, start: int = 0, limit: int) -> dict[str, Any]:
    """Return one page of rows: {"rows": short rows with their "position", "next": the next page's start or None}. The
    reader process is started only for a filter. Raises DatasetError if the rows can't be read."""
    if row_filter:
        return _find(version, {"filter": row_filter.as_dict(), "after": start, "limit": limit})
    _need_rows(version)
    try:
        rows = shown.page(version.folder, start, limit)
    except OSError as error:
        raise DatasetError("The rows of this version can't be read on the server.") from error
    end = start + len(rows)
    return {
        "rows": [{"position": position, **row} for position, row in enumerate(rows, start)],
        "next": end if end < version.rows else None,
    }


def count(version: DatasetVersion, row_filter: RowFilter) -> int:
    """Count the rows that pass a filter. Raises DatasetError if the rows can't be read."""
    return int(_find(version, {"filter": row_filter.as_dict(), "count": True})["count"])


def row(version: DatasetVersion, row_id: int, row_filter: RowFilter = ALL_ROWS) -> dict[str, Any]:
    """Return one row in full: {"row": the row or None, "before" and "after": the ids of its neighbors among the rows
    that pass the filter, or None}. Raises DatasetError if the rows can't be read."""
    return _find(version, {"row_id": row_id, "filter": row_filter.as_dict()})


def exact(version: DatasetVersion, row_ids: Sequence[int], max_bytes: int) -> dict[str, Any]:
    """Return the unmodified rows with these ids, read by one process: {"rows", "chat": whether prompts are messages,
    "left_out": how many didn't fit into `max_bytes`}. Raises DatasetError if the rows are gone or can't be read."""
    _need_rows(version)
    if not version.rows_path.exists():
        raise DatasetError("This version's rows are no longer on the server.")
    return _find(version, {"exact": sorted(set(row_ids)), "bytes": max_bytes})


def render_example(version: DatasetVersion, mapping: ColumnMapping, tokenizer: str) -> dict[str, Any]:
    """Map and render the first rows of the file; return {"rows", "problem": why the file or the tokenizer can't be
    read}.

    `tokenizer` is the sha256 of the Tokenizer for the exact text and its token count, or "". Raises DatasetError if it
    is gone, or if the reading process fails.
    """
    stored_tokenizer = Tokenizer.objects.filter(pk=tokenizer).first() if tokenizer else None
    if tokenizer and stored_tokenizer is None:
        raise DatasetError("This tokenizer is no longer available. Choose another one.")
    arguments = {
        "mapping": mapping.as_dict(),
        "tokenizer": str(stored_tokenizer.folder) if stored_tokenizer else None,
        **reader_process.backend_for(mapping),
    }
    result: dict[str, Any] = reader_process.ask(version.folder, "render", arguments)
    return result


def _find(version: DatasetVersion, arguments: Mapping[str, Any]) -> dict[str, Any]:
    _need_rows(version)
    result: dict[str, Any] = reader_process.ask(version.folder, "find", arguments)
    return result


def _need_rows(version: DatasetVersion) -> None:
    if version.status != DatasetVersion.READY:
        raise DatasetError("This version has no rows yet.")
    if not version.rows_path.exists() and storing.is_being_fetched(version):
        raise DatasetError("This version's rows are being fetched from the artifact store. Try again in a minute.")
