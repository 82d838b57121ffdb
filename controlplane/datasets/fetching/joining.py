"""Shards of one kind, one after the other as one file: the records of the first, then those of the second, and so on.

A single file stays as it is, compressed or not. Several: lines follow lines, the elements of JSON lists those of the
list before, rows of CSV and TSV follow under the first one's header, Parquet's row groups are written anew.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from controlplane.datasets.fetching.choosing import CSV, JSON, PARQUET, TSV, NotFetched
from controlplane.datasets.reader.parquet import check_footer
from controlplane.datasets.reader.problems import FileProblem
from controlplane.datasets.reader.progress_file import ProgressFile

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 2**20
BOM = b"\xef\xbb\xbf"
HEADER = 2**20
"""Bytes in which the header of a CSV file must end."""
BATCH = 10_000


def join(shards: Sequence[tuple[str, Path]], kind: str, target: Path, most: int, progress: ProgressFile) -> None:
    """`shards`: (name for people, file), which are used up. `most`: bytes of the whole. Raises NotFetched."""
    if len(shards) == 1:
        shards[0][1].replace(target)
        return
    draft = target.with_name(target.name + ".part")
    with draft.open("xb") as file:
        if kind == PARQUET:
            _tables(shards, file, most, progress)
        else:
            out = _Bounded(file, most)
            {JSON: _lists, CSV: _sheets, TSV: _sheets}.get(kind, _lines)(shards, out, progress)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)


class _Bounded:
    def __init__(self, file: IO[bytes], most: int) -> None:
        self.file, self.most, self.size = file, most, 0
        self.last = b"\n"

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.most:
            raise NotFetched(f"The files are larger than {self.most // 2**20:,} MiB, the most this installation takes.")
        self.file.write(piece)
        self.last = piece[-1:] or self.last


def _lines(shards: Sequence[tuple[str, Path]], out: _Bounded, progress: ProgressFile) -> None:
    done = 0
    for name, path in shards:
        if out.last != b"\n":
            out.write(b"\n")
        for piece in _without_bom(_pieces(name, path)):
            out.write(piece)
            progress.at(done, 0)
        done += path.stat().st_size
        path.unlink()


def _lists(shards: Sequence[tuple[str, Path]], out: _Bounded, progress: ProgressFile) -> None:
    """JSON lists become one; files that hold a line for each object are joined as lines."""
    begins = [_begins(name, path) for name, path in shards]
    if not all(first == b"[" for first in begins):
        if any(first == b"[" for first in begins):
            raise NotFetched("Some of the split's files are JSON lists and some are not.")
        return _lines(shards, out, progress)
    out.write(b"[")
    done, any_yet = 0, False
    for name, path in shards:
        for number, piece in enumerate(_inside(_without_bom(_pieces(name, path)))):
            if number == 0 and any_yet:
                out.write(b",\n")
            any_yet = True
            out.write(piece)
            progress.at(done, 0)
        done += path.stat().st_size
        path.unlink()
    out.write(b"]\n")
    return None


def _inside(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What stands between the first [ and the last ]; nothing for an empty list."""
    kept, begun = b"", False
    for piece in pieces:
        if not begun:
            kept = (kept + piece).lstrip()
            if not kept:
                continue
            kept, begun = kept[1:].lstrip(), True
        else:
            kept += piece
        # What may still turn out to be the end stays here: white space and brackets.
        sure = kept.rstrip(b" \t\r\n]")
        if sure:
            yield sure
            kept = kept[len(sure) :]
    end = kept.rstrip()
    if not end.endswith(b"]"):
        raise NotFetched("One of the split's files is a JSON list that does not end.")
    if end[:-1].strip():
        yield end[:-1]


def _sheets(shards: Sequence[tuple[str, Path]], out: _Bounded, progress: ProgressFile) -> None:
    first: bytes | None = None
    done = 0
    for name, path in shards:
        if out.last != b"\n":
            out.write(b"\n")
        pieces = _without_bom(_pieces(name, path))
        head = b""
        while len(head) < HEADER and (piece := next(pieces, b"")):
            head += piece
        end = _header_end(head)
        header = head[:end].rstrip(b"\r\n")
        if first is None:
            first = header
            out.write(head)
        elif header != first:
            raise NotFetched(f"The columns of {name} are not those of {shards[0][0]}.", "Upload the one you need.")
        else:
            out.write(head[end:])
        for piece in pieces:
            out.write(piece)
            progress.at(done, 0)
        done += path.stat().st_size
        path.unlink()


def _header_end(head: bytes) -> int:
    """Bytes of the first record: a quoted name may hold line breaks."""
    lines = head.splitlines(keepends=True)
    reader = csv.reader(line.decode("utf-8", "replace") for line in lines)
    try:
        next(reader, None)
    except csv.Error:
        return len(lines[0]) if lines else 0
    return sum(map(len, lines[: reader.line_num]))


def _tables(shards: Sequence[tuple[str, Path]], file: IO[bytes], most: int, progress: ProgressFile) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    done = rows = 0
    try:
        for name, path in shards:
            try:
                with path.open("rb") as raw:
                    check_footer(raw)  # before Arrow makes anything of the types in it
                table = pq.ParquetFile(path, arrow_extensions_enabled=False)
                schema = table.schema_arrow.remove_metadata()
                if len(set(schema.names)) < len(schema.names):
                    raise NotFetched(f"Two columns of {name} have the same name.", "Upload the one you need.")
                if writer is None:
                    first = schema
                    writer = pq.ParquetWriter(file, first, compression="zstd")
                for batch in table.iter_batches(batch_size=BATCH):
                    writer.write_batch(_like(batch, first, name))
                    rows += batch.num_rows
                    progress.at(done, rows)
                    if file.tell() > most:
                        raise NotFetched(
                            f"The files are larger than {most // 2**20:,} MiB, the most this installation takes."
                        )
            except FileProblem as problem:
                raise NotFetched(f"{name} can't be read as Parquet: {problem.message}") from problem
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise NotFetched(f"{name} can't be read as Parquet: {str(error).splitlines()[0][:200]}") from error
            done += path.stat().st_size
            path.unlink()
    finally:
        if writer is not None:
            writer.close()


def _like(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    if sorted(batch.schema.names) != sorted(schema.names):
        raise NotFetched(f"The columns of {name} are not those of the first file.", "Upload the one you need.")
    return batch.select(schema.names).cast(schema)


def _begins(name: str, path: Path) -> bytes:
    for piece in _without_bom(_pieces(name, path)):
        if stripped := piece.lstrip():
            return stripped[:1]
    return b""


def _pieces(name: str, path: Path) -> Iterator[bytes]:
    """The file's bytes, uncompressed."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
        try:
            while piece := file.read(BLOCK):
                yield piece
        except (gzip.BadGzipFile, zlib.error, EOFError, io.UnsupportedOperation) as error:
            raise NotFetched(f"{name} can't be unpacked: it is damaged or cut off.") from error


def _without_bom(pieces: Iterator[bytes]) -> Iterator[bytes]:
    first = next(pieces, b"")
    while 0 < len(first) < len(BOM) and (more := next(pieces, b"")):
        first += more
    if first := first.removeprefix(BOM):
        yield first
    yield from pieces
