"""Unpacks a gzip file while reading, with limits, so that a small file can't expand without end."""

from __future__ import annotations

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
GZIP = 16 + zlib.MAX_WBITS


class Unpacked(io.RawIOBase):
    """The content of a gzip file. Reading raises FileProblem if it is damaged, cut off or too large."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._member = zlib.decompressobj(GZIP)
        self._packed = b""
        self._taken = self._given = 0
        self._in_member = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    @property
    def bytes_read(self) -> int:
        """Compressed bytes read so far."""
        return self._taken

    def readinto(self, into: bytearray | memoryview) -> int:  # type: ignore[override]
        room = len(into)
        while True:
            if not self._packed:
                self._packed = self._file.read(PIECE) or b""
                self._taken += len(self._packed)
                if not self._packed:
                    return self._check_end()
            if not self._in_member and not self._start_member():
                return 0
            piece = self._unpack(room)
            if piece:
                into[: len(piece)] = piece
                return len(piece)

    def _start_member(self) -> bool:
        """True if another member follows; zeros may pad the end."""
        if self._given or self._taken > len(self._packed):
            self._packed = self._packed.lstrip(b"\0")
            if not self._packed:
                self._packed = self._file.read(PIECE) or b""
                self._taken += len(self._packed)
                return bool(self._packed) and self._start_member()
        self._member = zlib.decompressobj(GZIP)
        self._in_member = True
        return True

    def _unpack(self, room: int) -> bytes:
        try:
            piece = self._member.decompress(self._packed, room)
        except zlib.error as error:
            raise FileProblem(
                "broken_gzip", f"The gzip data is damaged after {self._given:,} unpacked bytes."
            ) from error
        if self._member.eof:
            self._packed, self._in_member = self._member.unused_data, False
        else:
            self._packed = self._member.unconsumed_tail
        self._given += len(piece)
        if self._given > LARGEST:
            raise FileProblem("too_large", f"The file unpacks to more than {LARGEST // 2**20:,} MiB.")
        if self._given > RATIO_FROM and self._given > HIGHEST_RATIO * self._taken:
            raise FileProblem(
                "too_large",
                f"The file unpacks to more than {HIGHEST_RATIO} times its size: files made to fill disks do this.",
                "Upload it uncompressed if its rows really are that similar.",
            )
        return piece

    def _check_end(self) -> int:
        if self._in_member or (not self._given and not self._taken):
            raise FileProblem("broken_gzip", f"The gzip data is cut off after {self._given:,} unpacked bytes.")
        return 0


def opened(path: Path, *, gzip: bool) -> BinaryIO:
    """The content of a file, buffered."""
    if not gzip:
        return path.open("rb")
    return io.BufferedReader(Unpacked(path), PIECE)


def bytes_read(file: BinaryIO) -> int:
    """Bytes of the file on disk that were read, for measuring progress."""
    raw = getattr(file, "raw", None)
    return raw.bytes_read if isinstance(raw, Unpacked) else file.tell()
