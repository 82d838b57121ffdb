"""Follower of outbox.jsonl for one sink: sends rows, stores the cursor, and retries with increasing pauses."""

import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import Line, read_line
from workers.contract.wire.names import METRIC_KINDS, EventKind, Phase
from workers.sinks.sink import About, Sink, row_of

POLL_S = 0.5
MAX_PAUSE_S = 60.0
MAX_FINAL_FAILURES = 3
"""Maximum consecutive failures of a sink once the attempt has ended; then it is given up."""
MAX_PROBLEM_LENGTH = 300
CHUNK = 1 << 20


@dataclass(frozen=True)
class Cursor:
    """Position of a sink in the outbox."""

    seq: int = 0
    """`seq` of the last line that the sink has."""
    offset: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    """The sink's own state, with which it is opened again."""

    @classmethod
    def read(cls, path: Path) -> "Cursor":
        """Read the cursor; return one at the beginning if the file is missing or invalid."""
        try:
            value = json.loads(path.read_text())
            return cls(int(value["seq"]), int(value["offset"]), dict(value["kept"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        replace_file(path, json.dumps({"seq": self.seq, "offset": self.offset, "kept": self.state}))


class Follower:
    def __init__(self, outbox: Path, cursor: Path, make: Callable[[], Sink], about: About) -> None:
        self._outbox, self._cursor_file = outbox, cursor
        self._make, self._about = make, about
        self._cursor = Cursor.read(cursor)
        self._sink: Sink | None = None
        self._ended = ""
        """End reason of the attempt once it is in the outbox, until then ""."""
        self._searched = 0
        """Offset up to which the outbox was searched for the end."""
        self.finished = threading.Event()
        self.problem = ""
        """Why the last attempt to send failed, as a sentence for people; "" if it succeeded."""

    def run(self) -> None:
        """Follow the outbox until the end, in a separate thread."""
        failures = 0
        while not self.finished.is_set():
            try:
                wait, failures = self.tick(), 0
                self.problem = ""
            except Exception as error:
                failures += 1
                key = self._about.key or "\0"
                message = " ".join(f"{type(error).__name__}: {error}".split())
                self.problem = message.replace(key, "…")[:MAX_PROBLEM_LENGTH]
                print(self.problem, traceback.format_exc().replace(key, "…"), flush=True)
                self._sink = None
                if self._ended and failures >= MAX_FINAL_FAILURES:
                    self.finished.set()
                wait = min(MAX_PAUSE_S, POLL_S * 2.0 ** min(failures, 12))
            if self._pause(wait):
                failures = 0

    def tick(self) -> float:
        """Send the next lines, and return the seconds until the next tick. Raises any exception of the sink."""
        if self._sink is None:
            sink = self._make()
            sink.open(self._about, self._cursor.state)
            self._sink = sink
            if sink.resends:
                self._cursor = Cursor()
        lines, offset = read_after(self._outbox, self._cursor.offset)
        new_lines = [line for line in lines if line.kind in METRIC_KINDS and line.seq > self._cursor.seq]
        rows = [row for line in new_lines if (row := row_of(line)) is not None]
        state = self._sink.write(rows) if rows else self._cursor.state
        if lines:
            self._cursor = Cursor(lines[-1].seq, offset, state)
            self._cursor.write(self._cursor_file)
            self._searched, self._ended = offset, self._ended or _end_in(lines)
            return 0.0
        if self._ended:
            self._sink.close(self._ended)
            self.finished.set()
        # Metrics may have arrived together with the end, after the lines were read.
        return 0.0 if self._has_ended() else POLL_S

    def _pause(self, seconds: float) -> bool:
        """Wait, but return True early if the attempt ends during the wait, since little time remains to retry."""
        deadline, ended_before = time.monotonic() + seconds, self._ended
        while (remaining := deadline - time.monotonic()) > 0 and not self.finished.wait(min(remaining, POLL_S)):
            if not ended_before and self._has_ended():
                return True
        return False

    def _has_ended(self) -> bool:
        """Return whether the attempt's end is in the outbox, which is searched separately, because a restarted process
        may have passed it and a failing sink may not reach it."""
        while not self._ended:
            lines, next_offset = read_after(self._outbox, self._searched)
            if next_offset == self._searched:
                return False
            self._searched = next_offset
            self._ended = _end_in(lines)
        return True


def read_after(path: Path, offset: int) -> tuple[list[Line], int]:
    """Read at most one chunk of complete lines from a byte offset, and return the lines and the offset after them."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
            data += b"" if b"\n" in data or len(data) < CHUNK else file.readline()
    except FileNotFoundError:
        return [], offset
    data = data[: data.rfind(b"\n") + 1]
    lines = [line for raw in data.splitlines() if (line := read_line(raw)) is not None and line.seq]
    return lines, offset + len(data)


def _end_in(lines: Sequence[Line]) -> str:
    for line in lines:
        data = line.data() or {}
        is_end = line.kind == EventKind.ENDED or (line.kind == EventKind.PHASE and data.get("phase") == Phase.STOPPING)
        if is_end and data.get("reason"):
            return str(data["reason"])
    return ""


def replace_file(path: Path, content: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(content)
    os.replace(part, path)
