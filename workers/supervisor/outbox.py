"""outbox.jsonl: every line the control plane shall have, in order, numbered without a gap.

The main thread appends; the sync thread reads batches after the last confirmed line. A full disk stops neither: what
cannot be written stays in memory until it can, and is sent from there.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

from workers.contract import EventKind, OutboxLine, to_json

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Outbox:
    def __init__(self, path: Path, *, first_seq: int) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._unwritten: deque[bytes] = deque()
        self.first_seq = first_seq
        self._end = self._cut_torn_line()
        self.last_seq = self._last_seq_on_disk()
        self.disk_full = False

    def append(self, kind: EventKind, data: dict[str, Any], *, t: float, step: int | None = None) -> int:
        """The line's seq. Never raises for a full disk; `disk_full` tells."""
        with self._lock:
            line = OutboxLine(self.last_seq + 1, t, kind, step, data)
            self.last_seq = line.seq
            self._unwritten.append(to_json(line).encode(errors="replace") + b"\n")
            self._write_out()
            return line.seq

    def read_after(self, offset: int, *, max_bytes: int) -> tuple[list[dict[str, Any]], int]:
        """Complete lines from a byte offset on, and the offset after them; lines kept in memory follow the file's."""
        with self._lock:
            self._write_out()
            end = self._end
            memory = list(self._unwritten)
        data = _whole_lines(os.pread(self._fd, min(max_bytes, max(0, end - offset)), offset))
        if not data and end > offset:  # one line longer than the batch
            data = _whole_lines(os.pread(self._fd, end - offset, offset))
        lines = [json.loads(line) for line in data.splitlines()]
        if offset + len(data) == end:
            lines += [json.loads(line) for line in memory]
        return lines, offset + len(data)

    def offset_after(self, seq: int, *, start: int = 0) -> int:
        """Where the line after `seq` begins, looked for from `start` (the beginning of a line) on."""
        offset = start
        with open(self._path, "rb") as file:
            file.seek(start)
            for line in file:
                if offset >= self._end or json.loads(line)["seq"] > seq:
                    break
                offset += len(line)
        return offset

    def flush_to_disk(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise

    def close(self) -> None:
        os.close(self._fd)

    def _write_out(self) -> None:
        """Write what is waiting. A line that doesn't fit whole is taken back, so the file never holds a torn one."""
        try:
            while self._unwritten:
                line = self._unwritten[0]
                if os.pwrite(self._fd, line, self._end) < len(line):
                    raise OSError(errno.ENOSPC, "a part of a line was written")
                self._end += len(line)
                self._unwritten.popleft()
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            self.disk_full = True
            os.ftruncate(self._fd, self._end)

    def _cut_torn_line(self) -> int:
        """A supervisor killed while writing leaves half a line; it was never sent, so it is no line."""
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
            os.ftruncate(self._fd, end)
        return end

    def _last_seq_on_disk(self) -> int:
        last = b""
        with open(self._path, "rb") as file:
            for line in file:
                last = line
        return int(json.loads(last)["seq"]) if last else self.first_seq - 1


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]
