"""Rows for pages: of a ready version by position or filter, one in full, and previews of a mapping."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.catalogue.datasets import reader_process, storing
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.versions import shown
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter

ALL = RowFilter()


def page(version: DatasetVersion, row_filter: RowFilter = ALL, *, after: int = 0, limit: int) -> dict[str, Any]:
    """Read one page of rows: {"rows": short rows with their "position", "next": the next page's start or None}.

    Only a filter starts the reader process. Raises DatasetError.
    """
    if row_filter:
        return _find(version, {"filter": row_filter.as_dict(), "after": after, "limit": limit})
    _need_rows(version)
    try:
        rows = shown.page(version.folder, after, limit)
    except OSError as error:
        raise DatasetError("The rows of this version can't be read on the server.") from error
    end = after + len(rows)
    return {
        "rows": [{"position": position, **row} for position, row in enumerate(rows, after)],
        "next": end if end < version.rows else None,
    }


def count(version: DatasetVersion, row_filter: RowFilter) -> int:
    """Count the rows that pass a filter. Raises DatasetError."""
    return int(_find(version, {"filter": row_filter.as_dict(), "count": True})["count"])


def row(version: DatasetVersion, row_id: int, row_filter: RowFilter = ALL) -> dict[str, Any]:
    """Read one row in full: {"row": the row or None, "before" and "after": the ids of its neighbors among the rows that
    pass the filter, or None}. Raises DatasetError."""
    return _find(version, {"row_id": row_id, "filter": row_filter.as_dict()})


def exact(version: DatasetVersion, row_ids: Sequence[int], most_bytes: int) -> dict[str, Any]:
    """Read many unmodified rows with one process: {"rows": those of these ids, "chat": whether prompts are messages,
    "left_out": how many didn't fit into `most_bytes`}. Raises DatasetError."""
    _need_rows(version)
    if not version.rows_path.exists():
        raise DatasetError("Its rows are no longer on the server.")
    return _find(version, {"exact": sorted(set(row_ids)), "bytes": most_bytes})


def render_example(version: DatasetVersion, mapping: ColumnMapping, tokenizer: str) -> dict[str, Any]:
    """Map and render the first rows of the file: {"rows", "problem": of the tokenizer}.

    `tokenizer`: a Tokenizer's sha256, for the exact text and its token count. Raises DatasetError.
    """
    stored = Tokenizer.objects.filter(pk=tokenizer).first() if tokenizer else None
    if tokenizer and stored is None:
        raise DatasetError("This tokenizer is no longer available. Choose another one.")
    arguments = {
        "mapping": mapping.as_dict(),
        "tokenizer": str(stored.folder) if stored else None,
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
        raise DatasetError("Its rows are being fetched from the artifact store. Try again in a minute.")
