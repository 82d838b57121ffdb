"""Follows a growing JSONL file: complete new lines, whatever else it contains."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

LINE_LIMIT = 4 << 20
"""A longer line is no message; it is skipped and counted."""
_CHUNK = 1 << 20


class Tail:
    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self._path = path
        self._fd: int | None = None
        self._offset = offset
        self._partial = b""
        self._skipping = False
        self.trouble: OSError | None = None
        """Why the last read failed, if the file exists."""
        self.bad_lines = 0
        """Lines that were too long or no JSON object (including invalid UTF-8)."""

    def read(self) -> list[dict[str, Any]]:
        """Objects of the lines completed since the last call; reads at most one chunk of the file."""
        return [value for _, value in self.read_raw()]

    def read_raw(self) -> list[tuple[bytes, dict[str, Any]]]:
        data = self._next_chunk()
        if not data:
            return []
        *complete, rest = data.split(b"\n")
        objects = []
        for part in complete:
            line, self._partial = self._partial + part, b""
            if self._skipping:
                self._skipping = False
                continue
            if len(line) > LINE_LIMIT:
                self.bad_lines += 1
                continue
            value = self._decode(line)
            if value is not None:
                objects.append((line, value))
        self._keep(rest)
        return objects

    def at_end(self) -> bool:
        """Whether the file is read to its end, complete lines or not."""
        try:
            # The open file, as it may have been removed.
            size = os.stat(self._path if self._fd is None else self._fd).st_size
        except OSError:
            return True
        return self._offset >= size or self.trouble is not None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next_chunk(self) -> bytes:
        """Empty if the file doesn't exist or a failing file system doesn't return it."""
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

    def _keep(self, rest: bytes) -> None:
        if self._skipping:
            return
        self._partial += rest
        if len(self._partial) > LINE_LIMIT:
            self._partial, self._skipping = b"", True
            self.bad_lines += 1

    def _decode(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        value = object_of(line)
        if value is not None:
            return value
        self.bad_lines += 1
        return None


def object_of(line: bytes) -> dict[str, Any] | None:
    """A line's JSON object, or None."""
    try:
        value = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> None:
    """NaN and Infinity are not JSON and rejected by PostgreSQL and browsers, so they become null."""
    return None
