"""The file outbox.jsonl: every line for the control plane, in order, numbered without a gap.

The main thread appends; the sync thread reads batches after the last confirmed line. A full, read-only or failing disk
stops neither: lines that can't be written stay in memory, and are sent from there.
"""

import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import Line, event_line, metrics_line, numbered, read_line
from workers.contract.wire.names import METRIC_KINDS, EventKind

log = logging.getLogger(__name__)

_CHUNK = 1 << 20


class Outbox:
    def __init__(self, path: Path, *, first_seq: int) -> None:
        self.trouble: OSError | None = None
        """First error in opening or writing the file."""
        self._in_memory = False
        self._fd = self._open(path)
        self._lock = threading.Lock()
        self._unwritten: deque[bytes] = deque()
        self.first_seq = first_seq
        self._end = self._cut_torn_line()
        seqs = [line.seq for raw in self._lines(0) if (line := line_of(raw)) is not None]
        self.last_seq = max(seqs, default=first_seq - 1)
        self._initial_count = len(seqs)

    def append(self, kind: EventKind, data: dict[str, Any], *, t: float, step: int | None = None) -> int:
        """Append one of the supervisor's own lines, dropping non-finite metrics, and return its seq."""
        if kind in METRIC_KINDS:
            return self.add(metrics_line(kind, data, t=t, step=step)[0])
        return self.add(event_line(kind, data, t=t, step=step))

    def add(self, line: bytes) -> int:
        """Number and append a line, and return its seq. If the disk fails, set `trouble` instead of raising."""
        with self._lock:
            self.last_seq += 1
            self._unwritten.append(numbered(line, self.last_seq) + b"\n")
            self._write_out()
            return self.last_seq

    def read_after(self, offset: int, *, max_bytes: int) -> tuple[list[Line], int]:
        """Return complete lines from a byte offset on, and the offset after them. Lines that exist only in memory come
        after the file's lines."""
        with self._lock:
            self._write_out()
            end = self._end
            memory = list(self._unwritten)
        data = _whole_lines(os.pread(self._fd, min(max_bytes, max(0, end - offset)), offset))
        if not data and end > offset:  # a single line is longer than the batch
            data = _whole_lines(os.pread(self._fd, end - offset, offset))
        complete = data.split(b"\n") + (memory if offset + len(data) == end else [])
        return [line for raw in complete if (line := line_of(raw)) is not None], offset + len(data)

    def offset_after(self, seq: int, *, start: int = 0) -> int:
        """Return the offset at which the line after `seq` begins, searching from `start`, where a line begins."""
        offset = start
        for raw in self._lines(start):
            line = line_of(raw)
            if offset >= self._end or (line is not None and line.seq > seq):
                break
            offset += len(raw)
        return offset

    def count(self, kinds: Collection[str]) -> int:
        return sum(line is not None and line.kind in kinds for line in map(line_of, self._lines(0)))

    def skip_to(self, seq: int) -> int:
        """Continue the numbering after `seq`, because the control plane has lines up to it that were lost here. Return
        how many lines are missing, compared to the file as it was opened: an earlier skip has left a gap in it."""
        with self._lock:
            self.last_seq = max(self.last_seq, seq)
            return self.last_seq + 1 - self.first_seq - self._initial_count

    @property
    def is_removed(self) -> bool:
        """True if the file has been removed; its content can still be read here until this process ends."""
        try:
            return not self._in_memory and os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False  # an error of the file system says nothing about the file

    def flush_to_disk(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            log.warning("the outbox was not flushed to the disk: %s", error)

    def close(self) -> None:
        os.close(self._fd)

    def _open(self, path: Path) -> int:
        """Open the file and return its descriptor. A read-only file keeps its lines and new ones stay in memory;
        without a file everything stays in memory, so that an attempt that can't even start can report that."""
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    self.trouble = self.trouble or error
                if error.errno not in (errno.EROFS, errno.EACCES):
                    break
        self._in_memory = True
        return os.memfd_create(path.name)

    def _write_out(self) -> None:
        """Write the waiting lines. A line that doesn't fit is removed again, so that the file has only complete
        lines."""
        try:
            while self._unwritten:
                line = self._unwritten[0]
                if os.pwrite(self._fd, line, self._end) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._end += len(line)
                self._unwritten.popleft()
        except OSError as error:
            self.trouble = self.trouble or error
            with suppress(OSError):  # otherwise the next line that can be written overwrites it
                os.ftruncate(self._fd, self._end)

    def _cut_torn_line(self) -> int:
        """Remove an incomplete line that a killed supervisor left and never sent; return the file's size."""
        size = os.fstat(self._fd).st_size
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            with suppress(OSError):  # nothing beyond the end is read
                os.ftruncate(self._fd, end)
        return end

    def _lines(self, start: int) -> Iterator[bytes]:
        # Through the descriptor: by now the path may lead to another file, or to none.
        position, torn_line = start, b""
        while data := os.pread(self._fd, _CHUNK, position):
            position += len(data)
            *lines, torn_line = (torn_line + data).split(b"\n")
            yield from (line + b"\n" for line in lines)


def line_of(raw: bytes) -> Line | None:
    """Parse a numbered line, with or without its line feed; return None for anything else."""
    line = read_line(raw.removesuffix(b"\n"))
    return line if line is not None and line.seq else None


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]
