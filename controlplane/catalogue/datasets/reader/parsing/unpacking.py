"""Unpacking of gzip files while they are read, and the limits of files and rows, so that none expands without end."""

import gzip as gzip_file
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from controlplane.catalogue.datasets.reader.problems import FileProblem

BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 8 * 2**20
MAX_UNPACKED_BYTES = 32 * 2**30
MAX_RATIO = 200
RATIO_FROM = 64 * 2**20
"""Unpacked bytes above which MAX_RATIO applies, since a short file of equal rows isn't an attack."""
MAX_ROWS_PER_BYTE = 2
SPARSE_FROM = 1_000_000
"""Rows above which MAX_ROWS_PER_BYTE applies, since a tiny file of equal rows would occupy the server for an hour."""
PIECE_BYTES = 2**18


class UnpackedFile(io.RawIOBase):
    """Content of a gzip file. Reading raises FileProblem if the file is damaged, truncated or too large."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._content = gzip_file.GzipFile(fileobj=self._file)
        self._unpacked = 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    @property
    def bytes_read(self) -> int:
        """Number of compressed bytes read so far."""
        return self._file.tell()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._content.read1(len(buffer))
        except EOFError as error:
            message = f"The gzip data is truncated after {self._unpacked:,} unpacked bytes."
            raise FileProblem("broken_gzip", message) from error
        except (gzip_file.BadGzipFile, zlib.error) as error:
            message = f"The gzip data is damaged after {self._unpacked:,} unpacked bytes."
            raise FileProblem("broken_gzip", message) from error
        buffer[: len(piece)] = piece
        self._unpacked += len(piece)
        check_expansion(self._unpacked, self.bytes_read)
        return len(piece)


def check_expansion(unpacked: int, packed: int) -> None:
    """Raise FileProblem if the content that was read, `unpacked` bytes, is too large for `packed` bytes of the file."""
    if unpacked > MAX_UNPACKED_BYTES:
        raise FileProblem("too_large", f"The file unpacks to over {MAX_UNPACKED_BYTES // 2**20:,} MiB.")
    if unpacked > RATIO_FROM and unpacked > MAX_RATIO * packed:
        raise FileProblem(
            "too_large",
            f"The file unpacks to more than {MAX_RATIO} times its size, as files made to fill disks do.",
            "If its rows really are that similar, upload it as uncompressed JSON Lines.",
        )


def check_rows(rows: int, packed: int) -> None:
    """Raise FileProblem if there are too many rows for `packed` bytes of the file."""
    if rows > SPARSE_FROM and rows > MAX_ROWS_PER_BYTE * packed:
        raise FileProblem(
            "too_large",
            f"The file has {rows:,} rows in {packed:,} bytes, so nearly all rows are empty or the same.",
            "Write each distinct row only once.",
        )


def open_content(path: Path, *, gzip: bool) -> BinaryIO:
    """Open a file for reading its content, unpacked if it is a gzip file."""
    if not gzip:
        return path.open("rb")
    return io.BufferedReader(UnpackedFile(path), PIECE_BYTES)


def bytes_read(file: BinaryIO) -> int:
    """Return the number of bytes read from the file on disk, to measure progress."""
    raw = getattr(file, "raw", None)
    return raw.bytes_read if isinstance(raw, UnpackedFile) else file.tell()
