"""A reader that follows a growing JSONL file line by line, and tolerates anything that it may contain."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_LINE_BYTES = 4 << 20
"""Maximum length of a line; longer lines are skipped and counted."""
_CHUNK = 1 << 20


class Tail(Generic[T]):
    """A reader of a file's new complete lines. `parse` returns None for a bad line."""

    def __init__(self, path: Path, parse: Callable[[bytes], T | None]) -> None:
        self._path = path
        self._parse = parse
        self._fd: int | None = None
        self._offset = 0
        self._partial = b""
        self._skipping = False
        self.trouble: OSError | None = None
        """Error of the last read; None if it succeeded or the file doesn't exist."""
        self.bad_lines = 0
        """Number of lines that were too long or could not be parsed."""

    def read(self) -> list[T]:
        """Return the parsed lines that were completed since the last call, from at most one chunk of the file."""
        data = self._next_chunk()
        if not data:
            return []
        *complete, torn_line = data.split(b"\n")
        values = []
        for part in complete:
            line, self._partial = self._partial + part, b""
            if self._skipping:
                self._skipping = False
                continue
            if len(line) > MAX_LINE_BYTES:
                self.bad_lines += 1
                continue
            if not line or line.isspace():
                continue
            value = self._parse(line)
            if value is None:
                self.bad_lines += 1
            else:
                values.append(value)
        self._keep(torn_line)
        return values

    def is_at_end(self) -> bool:
        """Return whether the file has been read to its end, even if its last line is incomplete."""
        try:
            # Through the descriptor, because the file may have been removed.
            size = os.stat(self._path if self._fd is None else self._fd).st_size
        except OSError:
            return True
        return self._offset >= size or self.trouble is not None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next_chunk(self) -> bytes:
        self.trouble = None
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self._fd, _CHUNK, self._offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.trouble = error
            return b""
        self._offset += len(data)
        return data

    def _keep(self, remainder: bytes) -> None:
        if self._skipping:
            return
        self._partial += remainder
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial, self._skipping = b"", True
            self.bad_lines += 1
