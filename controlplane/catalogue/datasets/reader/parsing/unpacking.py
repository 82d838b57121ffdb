"""Unpacking of gzip files while they are read, with limits, so that a small file can't expand without end."""

import gzip as gzip_file
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from controlplane.catalogue.datasets.reader.problems import FileProblem

MAX_UNPACKED_BYTES = 32 * 2**30
"""Maximum size of an unpacked file."""
MAX_RATIO = 200
RATIO_FROM = 64 * 2**20
"""Unpacked bytes above which MAX_RATIO applies, since a short file of equal rows isn't an attack."""
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

    def readinto(self, into: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._content.read1(len(into))
        except EOFError as error:
            message = f"The gzip data is truncated after {self._unpacked:,} unpacked bytes."
            raise FileProblem("broken_gzip", message) from error
        except (gzip_file.BadGzipFile, zlib.error) as error:
            message = f"The gzip data is damaged after {self._unpacked:,} unpacked bytes."
            raise FileProblem("broken_gzip", message) from error
        into[: len(piece)] = piece
        self._unpacked += len(piece)
        if self._unpacked > MAX_UNPACKED_BYTES:
            raise FileProblem("too_large", f"The file unpacks to over {MAX_UNPACKED_BYTES // 2**20:,} MiB.")
        if self._unpacked > RATIO_FROM and self._unpacked > MAX_RATIO * self.bytes_read:
            raise FileProblem(
                "too_large",
                f"The file unpacks to more than {MAX_RATIO} times its size, as files made to fill disks do.",
                "If its rows really are that similar, upload it uncompressed.",
            )
        return len(piece)


def open_content(path: Path, *, gzip: bool) -> BinaryIO:
    """Open a file for reading its content, unpacked if it is a gzip file."""
    if not gzip:
        return path.open("rb")
    return io.BufferedReader(UnpackedFile(path), PIECE_BYTES)


def bytes_read(file: BinaryIO) -> int:
    """Return the number of bytes of the file on disk that were read, to measure progress."""
    raw = getattr(file, "raw", None)
    return raw.bytes_read if isinstance(raw, UnpackedFile) else file.tell()
