"""Reading of Parquet: the footer is validated first, then the types of the columns; then rows are read in batches.

Functions import pyarrow themselves, so that a check of JSON Lines never loads it.
"""

import base64
import math
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from controlplane.catalogue.datasets.reader.excerpts import visible
from controlplane.catalogue.datasets.reader.limits import MAX_COLUMNS, MAX_ROWS
from controlplane.catalogue.datasets.reader.parsing.unpacking import check_expansion, check_rows, open_content
from controlplane.catalogue.datasets.reader.problems import DataProblem, FileProblem

MAX_FOOTER_BYTES = 16 * 2**20
MAX_LEAVES = 2000
MAX_LEVELS = 8
BATCH_ROWS = 500
MAX_UNPACKED_BYTES = 4 * 2**30
_ARROW_SCHEMA = re.compile(rb"\x18([\x80-\xff]{0,4}[\x00-\x7f])")
"""Pattern of the bytes between the key ARROW:schema and its value: Thrift's header and length of a binary field."""
PICKLE_PREFIXES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


@dataclass
class RowBatch:
    """Batch of rows: the number of the first row, the rows (None if unreadable), and the problems by index."""

    first: int
    rows: list[dict[str, Any] | None]
    problems: dict[int, DataProblem] = field(default_factory=dict)


class Parquet:
    """Parquet file. `columns` are the readable columns; `skipped` maps the others to the reasons, as sentences."""

    def __init__(self, path: Path, *, gzip: bool = False) -> None:
        self._file = _unpack(path) if gzip else path.open("rb")
        self._packed_bytes = path.stat().st_size
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def _open(self) -> None:
        import pyarrow
        from pyarrow import parquet

        footer = check_footer(self._file)
        failures = (pyarrow.ArrowException, OSError, ValueError, MemoryError)
        try:
            self._parquet = parquet.ParquetFile(
                self._file,
                buffer_size=2**20,
                pre_buffer=False,
                thrift_string_size_limit=MAX_FOOTER_BYTES,
                thrift_container_size_limit=1_000_000,
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )
            metadata = self._parquet.metadata
            _check_metadata(metadata, footer, self._packed_bytes)
            schema = self._parquet.schema_arrow
        except failures as error:
            raise FileProblem("broken_parquet", f"The file's footer can't be read: {_message(error)}") from error
        self._failures = failures
        self._metadata = metadata
        if len(schema.names) > MAX_COLUMNS or metadata.num_columns > MAX_LEAVES:
            raise FileProblem(
                "too_many_columns", f"The file has {len(schema.names):,} columns; the limit is {MAX_COLUMNS}."
            )
        if len(set(schema.names)) < len(schema.names):
            raise FileProblem("refused_parquet", "Two columns have the same name.", "Rename one of them.")
        refusals = {column.name: _refusal(column.type) for column in schema}
        self.columns = [name for name, reason in refusals.items() if not reason]
        self.skipped = {
            visible(name): f"The column “{visible(name)}” is skipped: {reason}."
            for name, reason in refusals.items()
            if reason
        }
        if not self.columns:
            reasons = " ".join(self.skipped.values())
            raise FileProblem("refused_parquet", f"None of the file's columns can be read. {reasons}"[:2000])

    @property
    def row_count(self) -> int:
        """Number of rows that the footer declares."""
        return int(self._metadata.num_rows)

    def batches(self) -> Iterator[RowBatch]:
        """Yield the batches of all row groups. A damaged group becomes one problem, at its first unreadable row.

        Raises FileProblem if memory is short or the rows are too large for the file, which stores equal values once.
        """
        group_start = size = 0
        for group in range(self._metadata.num_row_groups):
            declared_rows = int(self._metadata.row_group(group).num_rows)
            position = group_start
            try:
                for batch in self._parquet.iter_batches(
                    batch_size=BATCH_ROWS, row_groups=[group], columns=self.columns, use_threads=False
                ):
                    rows = _rows(batch, position)
                    size += sum(map(_size, rows.rows))
                    check_expansion(size, self._packed_bytes)
                    yield rows
                    position += batch.num_rows
                if position != group_start + declared_rows:
                    raise ValueError(f"it has {position - group_start:,} rows instead of {declared_rows:,}")
            except self._failures as error:
                yield self._damaged_batch(position, group_start + declared_rows, error)
            group_start += declared_rows

    def _damaged_batch(self, start: int, end: int, error: BaseException) -> RowBatch:
        import pyarrow

        if isinstance(error, MemoryError | pyarrow.ArrowMemoryError):
            raise FileProblem(
                "limits",
                "Reading the file's row groups takes more memory than is allowed.",
                "Write the file with smaller row groups (row_group_size=10000).",
            ) from error
        message = f"Rows {start + 1:,} to {end:,} can't be read: {_message(error)}"
        return RowBatch(start, [None], {0: DataProblem(start + 1, "damaged_rows", message)})


def check_footer(file: BinaryIO) -> int:
    """Check the footer's position and types, and return its offset. Raises FileProblem if the footer is too long or
    damaged."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    if size < 12 or tail[4:] != b"PAR1":
        defect = "is encrypted" if tail[4:] == b"PARE" else "is incomplete: it doesn't end as Parquet files do"
        raise FileProblem("broken_parquet", f"The file {defect}.")
    length = int.from_bytes(tail[:4], "little")
    if length > size - 12 or length == 0:
        raise FileProblem("broken_parquet", f"The file declares a {length:,}-byte footer, but has only {size:,} bytes.")
    if length > MAX_FOOTER_BYTES:
        raise FileProblem("broken_parquet", f"The footer has {length:,} bytes; the limit is {MAX_FOOTER_BYTES:,}.")
    file.seek(size - 8 - length)
    _refuse_types_with_code(file.read(length))
    file.seek(0)
    return size - 8 - length


def _refuse_types_with_code(footer: bytes) -> None:
    """Refuse extension types. They are searched for in the footer's bytes, since opening the file instantiates them."""
    schemas = b""
    for key in re.finditer(rb"ARROW:schema", footer):
        value = _ARROW_SCHEMA.match(footer, key.end())
        try:
            if value is None:
                raise ValueError
            length = sum((byte & 127) << 7 * index for index, byte in enumerate(value[1]))
            schemas += base64.b64decode(footer[value.end() : value.end() + length], validate=True)
        except ValueError as error:
            raise FileProblem("broken_parquet", "The schema in the file's footer can't be read.") from error
    if any(word in part for word in (b"ARROW:extension", b"py_extension_type") for part in (footer, schemas)):
        raise FileProblem("refused_parquet", "The file has Arrow extension types, which can run code and are refused.")


def _check_metadata(metadata: Any, footer: int, packed: int) -> None:
    for value in (metadata.metadata or {}).values():
        if value.startswith(PICKLE_PREFIXES) or _decoded_start(value).startswith(PICKLE_PREFIXES):
            raise FileProblem(
                "refused_parquet", "The file's metadata contains a Python pickle, which is never opened here."
            )
    if metadata.num_rows > MAX_ROWS:
        raise FileProblem("too_many_rows", f"The file has more than {MAX_ROWS:,} rows.")
    check_rows(metadata.num_rows, min(footer, packed))
    total_rows = 0
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        if group.num_rows < 0:
            raise FileProblem("broken_parquet", "The footer declares a negative number of rows.")
        total_rows += group.num_rows
        for column_index in range(group.num_columns):
            column = group.column(column_index)
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            size = column.total_compressed_size
            if start < 4 or size < 0 or column.total_uncompressed_size < 0 or start + size > footer:
                raise FileProblem("broken_parquet", "The footer refers to positions outside the file.")
    if total_rows != metadata.num_rows:
        raise FileProblem(
            "broken_parquet",
            f"The footer declares {metadata.num_rows:,} rows, but its row groups have {total_rows:,}.",
        )


def _decoded_start(value: bytes) -> bytes:
    try:
        return base64.b64decode(value[:4], validate=True)
    except ValueError:
        return b""


def _refusal(kind: Any, level: int = 0) -> str:
    """Explain why values of an Arrow type can't be read; return "" if they can."""
    from pyarrow import types

    if level > MAX_LEVELS:
        return f"it is nested deeper than {MAX_LEVELS} levels"
    plain_types = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_null,
        types.is_date,
        types.is_timestamp,
        types.is_decimal,
    )
    if any(is_type(kind) for is_type in plain_types):
        return ""
    nested_types = (types.is_dictionary, types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(is_type(kind) for is_type in nested_types):
        return _refusal(kind.value_type, level + 1)
    if types.is_struct(kind):
        fields = list(kind)
        if len({field.name for field in fields}) < len(fields):
            return "two of its fields have the same name"
        return next((reason for field in fields if (reason := _refusal(field.type, level + 1))), "")
    return f"its type {visible(str(kind))[:80]} has no counterpart in JSON"


def _rows(batch: Any, first: int) -> RowBatch:
    try:
        return RowBatch(first, [_plain(row) for row in batch.to_pylist()])
    except UnicodeDecodeError:
        pass
    rows = RowBatch(first, [])
    for index in range(batch.num_rows):
        try:
            rows.rows.append(_plain(batch.slice(index, 1).to_pylist()[0]))
        except UnicodeDecodeError as error:
            rows.rows.append(None)
            message = f"A string in this row is not UTF-8: byte 0x{error.object[error.start]:02x}."
            rows.problems[index] = DataProblem(first + index + 1, "invalid_utf8", message)
    return rows


def _plain(value: Any) -> Any:
    """Convert a value to a JSON value: dates and decimals become strings, NaN and infinity become null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _size(value: Any) -> int:
    """Return about as many bytes as a value takes in JSON."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _unpack(path: Path) -> BinaryIO:
    """Unpack a compressed file into an unnamed one, and return the latter, since Parquet is read from the end."""
    file = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 -- the caller closes it
    size = 0
    try:
        with open_content(path, gzip=True) as packed_file:
            while piece := packed_file.read(2**20):
                size += len(piece)
                if size > MAX_UNPACKED_BYTES:
                    raise FileProblem("too_large", f"The file unpacks to over {MAX_UNPACKED_BYTES // 2**20:,} MiB.")
                file.write(piece)
    except BaseException:
        file.close()
        raise
    return file


def _message(error: BaseException) -> str:
    return visible(str(error).splitlines()[0] if str(error) else type(error).__name__)[:300]
