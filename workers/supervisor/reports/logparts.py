"""The parts of a log file that make up its stream, in order, each after words about what is left out.

The stream is the bytes that the control plane stores, counted from 0. Each part is recorded before any of it is sent,
so that a reaper can also map the stream's bytes to the file's.
"""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from workers.contract.wire.names import FileName
from workers.supervisor.processes.folder import AttemptFolder

log = logging.getLogger(__name__)

_AT = attrgetter("at")


@dataclass(frozen=True)
class LogSection:
    """A section; it ends where the next one begins."""

    at: int
    """The position of its words in the stream."""
    words: bytes
    start: int
    """The position in the file of the bytes after the words."""


class Parts:
    """The parts of one log as recorded in the attempt's folder; the first one is its head, without words."""

    def __init__(self, name: str, folder: AttemptFolder) -> None:
        self._name = name
        self._folder = folder
        self._parts = [LogSection(0, b"", 0)]
        for part in _recorded(name, folder / FileName.LOG_PARTS):
            self._add(part)

    @property
    def last(self) -> LogSection:
        return self._parts[-1]

    def begin(self, part: LogSection, *, unrecorded: bool = False) -> bool:
        """Append `part` after everything sent; False if it can't be recorded and is dropped."""
        if not (self._write_down(part) or unrecorded):
            return False
        self._add(part)
        return True

    def reached(self, at: int) -> int:
        """The position in the file that corresponds to the stream's byte `at`, sent or left out."""
        part = self._parts[max(0, bisect_left(self._parts, at, key=_AT) - 1)]
        return part.start + max(0, at - part.at - len(part.words))

    def read(self, fd: int, at: int, limit: int) -> bytes:
        """The stream's bytes from `at` on, within one part; raises OSError like the file."""
        index = bisect_right(self._parts, at, key=_AT) - 1
        part, following = self._parts[index], self._parts[index + 1 : index + 2]
        limit = min([limit, *(other.at - at for other in following)])
        into = at - part.at
        words = part.words[into : into + limit]
        return words + os.pread(fd, limit - len(words), part.start + max(0, into - len(part.words)))

    def _add(self, part: LogSection) -> None:
        if part.at == self.last.at and len(self._parts) > 1:
            self._parts.pop()  # nothing of it was sent
        self._parts.append(part)

    def _write_down(self, part: LogSection) -> bool:
        # The first line feed ends a line cut off by a crash or a full disk.
        line = b"\n%s\n" % json.dumps([self._name, part.at, part.words.decode(), part.start]).encode()
        if self._folder.lost:  # another file may have taken its place
            return False
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self._folder / FileName.LOG_PARTS, flags, 0o600)
            try:
                return os.write(fd, line) == len(line)
            finally:
                os.close(fd)
        except OSError:
            log.debug("%s could not be written", FileName.LOG_PARTS, exc_info=True)
            return False


def _recorded(name: str, record: Path) -> Iterator[LogSection]:
    try:
        lines = record.read_bytes().split(b"\n")[:-1]
    except OSError:
        return
    for line in lines:
        try:
            log_name, at, words, start = json.loads(line)
            part = LogSection(int(at), str(words).encode(), int(start))
        except (ValueError, TypeError):
            continue
        if log_name == name:
            yield part
