"""outbox.jsonl: every line the control plane shall have, in order, numbered without a gap.

The main thread appends; the sync thread reads batches after the last confirmed line. A disk that is full, read-only or
sick stops neither: what cannot be written stays in memory until it can, and is sent from there.
"""

from __future__ import annotations

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
        """Why a line could not be written, the first time."""
        self._in_memory = False
        self._fd = self._open(path)
        self._lock = threading.Lock()
        self._unwritten: deque[bytes] = deque()
        self.first_seq = first_seq
        self._end = self._cut_torn_line()
        seqs = [line.seq for raw in self._lines(0) if (line := line_of(raw)) is not None]
        self.last_seq = max(seqs, default=first_seq - 1)
        self._found = len(seqs)

    def append(self, kind: EventKind, data: dict[str, Any], *, t: float, step: int | None = None) -> int:
        """Write one of the supervisor's own lines, without figures that aren't finite."""
        if kind in METRIC_KINDS:
            return self.add(metrics_line(kind, data, t=t, step=step)[0])
        return self.add(event_line(kind, data, t=t, step=step))

    def add(self, line: bytes) -> int:
        """Number it; the line's seq. Never raises for a disk's sake; `trouble` tells."""
        with self._lock:
            self.last_seq += 1
            self._unwritten.append(numbered(line, self.last_seq) + b"\n")
            self._write_out()
            return self.last_seq

    def read_after(self, offset: int, *, max_bytes: int) -> tuple[list[Line], int]:
        """Complete lines from a byte offset on, and the offset after them; lines kept in memory follow the file's."""
        with self._lock:
            self._write_out()
            end = self._end
            memory = list(self._unwritten)
        data = _whole_lines(os.pread(self._fd, min(max_bytes, max(0, end - offset)), offset))
        if not data and end > offset:  # one line longer than the batch
            data = _whole_lines(os.pread(self._fd, end - offset, offset))
        complete = data.split(b"\n") + (memory if offset + len(data) == end else [])
        return [line for raw in complete if (line := line_of(raw)) is not None], offset + len(data)

    def offset_after(self, seq: int, *, start: int = 0) -> int:
        """Where the line after `seq` begins, looked for from `start` (the beginning of a line) on."""
        offset = start
        for raw in self._lines(start):
            line = line_of(raw)
            if offset >= self._end or (line is not None and line.seq > seq):
                break
            offset += len(raw)
        return offset

    def count(self, kinds: Collection[str]) -> int:
        """Lines of these kinds in the file."""
        return sum(line is not None and line.kind in kinds for line in map(line_of, self._lines(0)))

    def skip_to(self, seq: int) -> int:
        """Lines up to `seq` exist elsewhere, and were lost here: the next one is numbered after them. How many were
        lost, by the file as it was opened: whoever skipped them before has left a gap in it."""
        with self._lock:
            self.last_seq = max(self.last_seq, seq)
            return self.last_seq + 1 - self.first_seq - self._found

    @property
    def removed(self) -> bool:
        """Somebody has removed the file; what is written is still read from here, and gone with this process."""
        try:
            return not self._in_memory and os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False  # a file system in trouble can't tell

    def flush_to_disk(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            log.warning("the outbox was not flushed to the disk: %s", error)

    def close(self) -> None:
        os.close(self._fd)

    def _open(self, path: Path) -> int:
        """Open for writing, or read-only with new lines in memory. Without a file everything stays in memory, so that
        an attempt that can't even start can report it."""
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
        """Write what is waiting. A line that doesn't fit whole is taken back, so the file never holds a torn one."""
        try:
            while self._unwritten:
                line = self._unwritten[0]
                if os.pwrite(self._fd, line, self._end) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._end += len(line)
                self._unwritten.popleft()
        except OSError as error:
            self.trouble = self.trouble or error
            with suppress(OSError):  # the next line that can be written goes over it
                os.ftruncate(self._fd, self._end)

    def _cut_torn_line(self) -> int:
        """A supervisor killed while writing leaves half a line; it was never sent, so it doesn't count."""
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
            with suppress(OSError):  # it can't be written to: nothing beyond the end is read either
                os.ftruncate(self._fd, end)
        return end

    def _lines(self, start: int) -> Iterator[bytes]:
        """Read by the descriptor: the file that has this path may be another one, or none, by now."""
        position, rest = start, b""
        while data := os.pread(self._fd, _CHUNK, position):
            position += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line + b"\n" for line in lines)


def line_of(raw: bytes) -> Line | None:
    """The numbered line that these bytes are, with or without its end."""
    line = read_line(raw.removesuffix(b"\n"))
    return line if line is not None and line.seq else None


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]
