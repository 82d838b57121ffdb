"""The content of a gzip file, unpacked while reading and with limits, so that a small file can't expand without end."""

import gzip as gzip_file
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from controlplane.catalogue.datasets.reader.problems import FileProblem

LARGEST = 32 * 2**30
"""Bytes that a file may unpack to."""
HIGHEST_RATIO = 200
RATIO_FROM = 64 * 2**20
"""Unpacked bytes above which the ratio counts: a short file of equal rows isn't an attack."""
PIECE = 2**18


class Unpacked(io.RawIOBase):
    """The content of a gzip file. Reading raises FileProblem if it is damaged, cut off or too large."""

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
        """Compressed bytes read so far."""
        return self._file.tell()

    def readinto(self, into: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._content.read1(len(into))
        except EOFError as error:
            message = f"The gzip data is cut off after {self._unpacked:,} unpacked bytes."
            raise FileProblem("broken_gzip", message) from error
        except (gzip_file.BadGzipFile, zlib.error) as error:
            message = f"The gzip data is damaged after {self._unpacked:,} unpacked bytes."
            raise FileProblem("broken_gzip", message) from error
        into[: len(piece)] = piece
        self._unpacked += len(piece)
        if self._unpacked > LARGEST:
            raise FileProblem("too_large", f"The file unpacks to more than {LARGEST // 2**20:,} MiB.")
        if self._unpacked > RATIO_FROM and self._unpacked > HIGHEST_RATIO * self.bytes_read:
            raise FileProblem(
                "too_large",
                f"The file unpacks to more than {HIGHEST_RATIO} times its size: files made to fill disks do this.",
                "Upload it uncompressed if its rows really are that similar.",
            )
        return len(piece)


def opened(path: Path, *, gzip: bool) -> BinaryIO:
    """Open the content of a file, buffered."""
    if not gzip:
        return path.open("rb")
    return io.BufferedReader(Unpacked(path), PIECE)


def bytes_read(file: BinaryIO) -> int:
    """Count the bytes of the file on disk that were read, for measuring progress."""
    raw = getattr(file, "raw", None)
    return raw.bytes_read if isinstance(raw, Unpacked) else file.tell()
