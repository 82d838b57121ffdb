"""The sections of a log file that make up its stream, in order, each after a note about the bytes omitted before it.

The stream consists of the bytes that the control plane stores, counted from 0. Each section is recorded before any of
it is sent, so that a reaper can also map positions in the stream to positions in the file.
"""

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

_START_OF = attrgetter("at")


@dataclass(frozen=True)
class LogSection:
    """A section of a log, which ends where the next begins."""

    at: int
    """Position of its note in the stream."""
    note: bytes
    """Note about the bytes omitted before the section."""
    start: int
    """Position in the file of the section's first byte."""


class LogSections:
    """The sections of one log, as recorded in the attempt's folder. The first is the log's head, without a note."""

    def __init__(self, name: str, folder: AttemptFolder) -> None:
        self._name = name
        self._folder = folder
        self._sections = [LogSection(0, b"", 0)]
        for section in _recorded(name, folder / FileName.LOG_PARTS):
            self._add(section)

    @property
    def last(self) -> LogSection:
        return self._sections[-1]

    def begin(self, section: LogSection, *, unrecorded: bool = False) -> bool:
        """Append a section after everything sent and return True; drop it and return False if it can't be recorded,
        unless it may be `unrecorded`."""
        if not (self._record(section) or unrecorded):
            return False
        self._add(section)
        return True

    def file_position(self, position: int) -> int:
        """Return the position in the file that corresponds to a position in the stream."""
        section = self._sections[max(0, bisect_left(self._sections, position, key=_START_OF) - 1)]
        return section.start + max(0, position - section.at - len(section.note))

    def read(self, fd: int, position: int, limit: int) -> bytes:
        """Return the stream's bytes from a position on, within one section. Raises OSError if the log can't be read."""
        index = bisect_right(self._sections, position, key=_START_OF) - 1
        section, later_sections = self._sections[index], self._sections[index + 1 : index + 2]
        limit = min([limit, *(section_after.at - position for section_after in later_sections)])
        offset = position - section.at
        note = section.note[offset : offset + limit]
        return note + os.pread(fd, limit - len(note), section.start + max(0, offset - len(section.note)))

    def _add(self, section: LogSection) -> None:
        if section.at == self.last.at and len(self._sections) > 1:
            self._sections.pop()  # nothing of it was sent
        self._sections.append(section)

    def _record(self, section: LogSection) -> bool:
        # The first line feed ends a line cut off by a crash or a full disk.
        line = b"\n%s\n" % json.dumps([self._name, section.at, section.note.decode(), section.start]).encode()
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
            log_name, at, note, start = json.loads(line)
            section = LogSection(int(at), str(note).encode(), int(start))
        except (ValueError, TypeError):
            continue
        if log_name == name:
            yield section
