"""Joining of shards of one kind into one file: lines are concatenated, Parquet row groups are rewritten.

A single file stays unchanged, whatever its kind and compression.
"""

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from controlplane.catalogue.datasets.fetching.choosing import NotFetched
from controlplane.catalogue.datasets.reader.parsing.formats import JSON, JSONL, PARQUET
from controlplane.catalogue.datasets.reader.parsing.parquet import check_footer
from controlplane.catalogue.datasets.reader.parsing.unpacking import BOM
from controlplane.catalogue.datasets.reader.problems import FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 2**20
BATCH_ROWS = 10_000
MAX_BLANK_BLOCKS = 16
"""Number of blocks in which the first character of a JSON list is searched for."""


def join(shards: Sequence[tuple[str, Path]], kind: str, target: Path, limit: int, progress: ProgressFile) -> None:
    """Join `shards`, pairs of a display name and a file, into `target`, and delete them. Raises NotFetched if they
    can't be joined, or if the result exceeds `limit` bytes."""
    if len(shards) == 1:
        shards[0][1].replace(target)
        return
    if kind not in (JSONL, JSON, PARQUET) or (kind == JSON and any(_is_list(name, path) for name, path in shards)):
        raise NotFetched(
            f"The split has {len(shards):,} files, and only JSON Lines or Parquet files can be joined.",
            "Join them into one file, and upload it.",
        )
    draft = target.with_name(target.name + ".part")
    with draft.open("xb") as file:
        if kind == PARQUET:
            _join_tables(shards, file, limit, progress)
        else:
            _join_lines(shards, _LimitedFile(file, limit), progress)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)


class _LimitedFile:
    def __init__(self, file: IO[bytes], limit: int) -> None:
        self.file, self.limit, self.size = file, limit, 0
        self.last_byte = b"\n"

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.limit:
            raise _too_large(self.limit)
        self.file.write(piece)
        self.last_byte = piece[-1:] or self.last_byte


def _join_lines(shards: Sequence[tuple[str, Path]], out: _LimitedFile, progress: ProgressFile) -> None:
    bytes_read = 0
    for name, path in shards:
        if out.last_byte != b"\n":
            out.write(b"\n")
        for piece in _without_bom(_pieces(name, path)):
            out.write(piece)
            progress.report(bytes_read, 0)
        bytes_read += path.stat().st_size
        path.unlink()


def _join_tables(shards: Sequence[tuple[str, Path]], file: IO[bytes], limit: int, progress: ProgressFile) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    bytes_read = rows = 0
    try:
        for name, path in shards:
            try:
                with path.open("rb") as raw:
                    check_footer(raw)  # before Arrow instantiates any of its types
                table = pq.ParquetFile(path, arrow_extensions_enabled=False)
                schema = table.schema_arrow.remove_metadata()
                if len(set(schema.names)) < len(schema.names):
                    raise NotFetched(f"Two columns of {name} have the same name.", "Rename one, and upload the file.")
                if writer is None:
                    first_schema = schema
                    writer = pq.ParquetWriter(file, first_schema, compression="zstd")
                for batch in table.iter_batches(batch_size=BATCH_ROWS):
                    writer.write_batch(_with_schema(batch, first_schema, name))
                    rows += batch.num_rows
                    progress.report(bytes_read, rows)
                    if file.tell() > limit:
                        raise _too_large(limit)
            except FileProblem as problem:
                raise NotFetched(f"{name} can't be read as Parquet: {problem.message}") from problem
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise NotFetched(f"{name} can't be read as Parquet: {str(error).splitlines()[0][:200]}") from error
            bytes_read += path.stat().st_size
            path.unlink()
    finally:
        if writer is not None:
            writer.close()


def _too_large(limit: int) -> NotFetched:
    return NotFetched(f"The files are larger than {limit // 2**20:,} MiB, the limit of this installation.")


def _with_schema(batch: "pa.RecordBatch", schema: "pa.Schema", name: str) -> "pa.RecordBatch":
    if sorted(batch.schema.names) != sorted(schema.names):
        raise NotFetched(f"The columns of {name} differ from those of the first file.", "Upload the file you need.")
    return batch.select(schema.names).cast(schema)


def _is_list(name: str, path: Path) -> bool:
    """Return whether a file is a JSON list. Only its start is read, since gzip can pack blanks without end."""
    start = islice(_without_bom(_pieces(name, path)), MAX_BLANK_BLOCKS)
    return next((piece.lstrip()[:1] for piece in start if piece.strip()), b"") == b"["


def _pieces(name: str, path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file: IO[bytes] = gzip.GzipFile(fileobj=raw) if is_gzip else raw  # type: ignore[assignment]
        try:
            while piece := file.read(BLOCK):
                yield piece
        except (gzip.BadGzipFile, zlib.error, EOFError, io.UnsupportedOperation) as error:
            raise NotFetched(f"{name} can't be unpacked: it is damaged or truncated.") from error


def _without_bom(pieces: Iterator[bytes]) -> Iterator[bytes]:
    first = next(pieces, b"")
    while 0 < len(first) < len(BOM) and (piece := next(pieces, b"")):
        first += piece
    if first := first.removeprefix(BOM):
        yield first
    yield from pieces
