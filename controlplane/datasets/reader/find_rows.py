"""Rows of a ready version for people: those that a filter means, a page at a time, or one in full.

A page of all rows needs none of this: see `shown`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.datasets.reader import files
from controlplane.datasets.reader.canonical import chat_of
from controlplane.datasets.reader.excerpts import cut, short
from controlplane.datasets.reader.filtering import RowFilter, matching

PAGE = 50
PATIENCE_S = 5.0
"""After so long a page of a rare text is given as far as it is, with where to go on."""
IN_FULL = 200_000
"""Characters of one text of a row in full."""


def look(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"row_id": n} -> {"row": the row in full, or None}.
    {"filter", "after": position, "limit"} -> {"rows": [short rows with their "position"], "next": where the next page
    begins, or None at the end, "looked_at": rows that were gone through}.
    {"filter", "count": true} -> {"count": n}.
    {"exact": row_ids, "bytes": most} -> {"rows": [rows without a letter changed], "chat": whether prompts are messages,
    "left_out": how many there were no bytes for}.

    Raises FilterError.
    """
    rows = open_rows(folder)
    if "exact" in arguments:
        return _exact(rows, [int(one) for one in arguments["exact"]], int(arguments["bytes"]))
    if "row_id" in arguments:
        return {"row": _one(rows, int(arguments["row_id"]))}
    wanted = RowFilter.from_dict(arguments.get("filter") or {})
    if arguments.get("count"):
        return {"count": sum(len(matching(batch, wanted)) for _, batch in batches(rows))}
    return _page(rows, wanted, int(arguments.get("after", 0)), int(arguments.get("limit", PAGE)))


def row_of(batch: pa.RecordBatch, place: int) -> dict[str, Any]:
    """One row with its metadata as an object."""
    row: dict[str, Any] = batch.slice(place, 1).to_pylist()[0]
    return {**row, "metadata": msgspec.json.decode(row["metadata"])}


def batches(rows: pq.ParquetFile, start: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(position of its first row, batch) from the row `start` on."""
    at = 0
    for group in range(rows.num_row_groups):
        count = rows.metadata.row_group(group).num_rows
        if at + count > start:
            place = at
            for batch in rows.iter_batches(row_groups=[group], batch_size=10_000):
                skip = min(max(0, start - place), batch.num_rows)
                if skip < batch.num_rows:
                    yield place + skip, batch.slice(skip)
                place += batch.num_rows
        at += count


def open_rows(folder: Path) -> pq.ParquetFile:
    return pq.ParquetFile(folder / files.ROWS)


def _page(rows: pq.ParquetFile, wanted: RowFilter, after: int, limit: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    until = time.monotonic() + PATIENCE_S
    at = after
    for at, batch in batches(rows, after):
        for place in matching(batch, wanted):
            if len(found) == limit:
                return {"rows": found, "next": at + place, "looked_at": at + place - after}
            found.append({"position": at + place, **short(row_of(batch, place))})
        at += batch.num_rows
        if time.monotonic() > until and at < rows.metadata.num_rows:
            return {"rows": found, "next": at, "looked_at": at - after}
    return {"rows": found, "next": None, "looked_at": max(0, at - after)}


def _one(rows: pq.ParquetFile, row_id: int) -> dict[str, Any] | None:
    for row in _by_number(rows, (row_id,)):
        shown: dict[str, Any] = cut(row, IN_FULL)
        return shown
    return None


def _exact(rows: pq.ParquetFile, row_ids: Sequence[int], most: int) -> dict[str, Any]:
    found, size, left_out = [], 0, 0
    for row in _by_number(rows, tuple(row_ids)):
        size += len(msgspec.json.encode(row))
        if size > most:
            left_out += 1
        else:
            found.append(row)
    return {"rows": found, "chat": chat_of(rows.schema_arrow), "left_out": left_out}


def _by_number(rows: pq.ParquetFile, row_ids: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Those that there are, in the file's order; row groups that have none of them are not read."""
    wanted = RowFilter(row_ids=row_ids)
    for group in range(rows.num_row_groups):
        told = rows.metadata.row_group(group).column(0).statistics
        if told is not None and told.has_min_max and not any(told.min <= one <= told.max for one in row_ids):
            continue
        for batch in rows.iter_batches(row_groups=[group], batch_size=10_000):
            for place in matching(batch, wanted):
                yield row_of(batch, place)
