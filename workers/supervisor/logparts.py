"""What of a log's file makes up its stream: parts of the file in order, each after words that say what is left out.

The stream is the bytes that the control plane stores, counted from 0. A part is written down before a byte of it is
sent: so a reaper too knows which byte of the file each byte of the stream is.
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

from workers.contract import FileName
from workers.supervisor.folder import AttemptFolder

log = logging.getLogger(__name__)

_AT = attrgetter("at")


@dataclass(frozen=True)
class LogSection:
    """It ends where the next one begins."""

    at: int
    """Where in the stream its words begin."""
    words: bytes
    start: int
    """Where in the file the bytes after them begin."""


class Parts:
    """Of one log, as far as they are known in the attempt's folder; the first one is its head, without words."""

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
        """`part` follows, at the end of what was sent; False if it can't be written down and so doesn't."""
        if not (self._write_down(part) or unrecorded):
            return False
        self._add(part)
        return True

    def reached(self, at: int) -> int:
        """How much of the file lies before the stream's byte `at`, sent or left out."""
        part = self._parts[max(0, bisect_left(self._parts, at, key=_AT) - 1)]
        return part.start + max(0, at - part.at - len(part.words))

    def read(self, fd: int, at: int, most: int) -> bytes:
        """The stream's bytes from `at` on, of one part; OSError as from the file."""
        index = bisect_right(self._parts, at, key=_AT) - 1
        part, following = self._parts[index], self._parts[index + 1 : index + 2]
        most = min([most, *(other.at - at for other in following)])
        into = at - part.at
        words = part.words[into : into + most]
        return words + os.pread(fd, most - len(words), part.start + max(0, into - len(part.words)))

    def _add(self, part: LogSection) -> None:
        if part.at == self.last.at and len(self._parts) > 1:
            self._parts.pop()  # nothing of it was sent
        self._parts.append(part)

    def _write_down(self, part: LogSection) -> bool:
        # The first line feed ends a line that a crash or a full disk cut off.
        line = b"\n%s\n" % json.dumps([self._name, part.at, part.words.decode(), part.start]).encode()
        if self._folder.lost:  # another one may stand in its place
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
            whose, at, words, start = json.loads(line)
            part = LogSection(int(at), str(words).encode(), int(start))
        except (ValueError, TypeError):
            continue
        if whose == name:
            yield part
