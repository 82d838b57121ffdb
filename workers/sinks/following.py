"""One sink's way through the outbox: read, write, keep the cursor; what fails is tried again, with longer pauses."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from workers.contract.reports.lines import Line
from workers.contract.wire.names import METRIC_KINDS
from workers.sinks.outbox import Cursor, end_in, read_after
from workers.sinks.sink import About, Row, Sink, row_of

POLL_S = 0.5
LONGEST_PAUSE_S = 60.0
LAST_TRIES = 3
"""After the attempt's end, for a sink that refuses."""
LONGEST_PROBLEM = 300


class Follower:
    def __init__(self, outbox: Path, cursor: Path, make: Callable[[], Sink], about: About) -> None:
        self._outbox, self._cursor_file = outbox, cursor
        self._make, self._about = make, about
        self._cursor = Cursor.read(cursor)
        self._sink: Sink | None = None
        self._ended = ""
        """The attempt's end reason, once it is in the outbox."""
        self._looked = 0
        """The offset up to which it was looked for."""
        self.finished = threading.Event()
        self.problem = ""
        """Why the last try failed, for people."""

    def run(self) -> None:
        """In a thread of its own."""
        failures = 0
        while not self.finished.is_set():
            try:
                wait, failures = self.tick(), 0
                self.problem = ""
            except Exception as error:
                failures += 1
                self.problem = _in_words(error, self._about.key)
                print(self.problem, traceback.format_exc().replace(self._about.key or "\0", "…"), flush=True)
                self._sink = None
                if self._ended and failures >= LAST_TRIES:
                    self.finished.set()
                wait = min(LONGEST_PAUSE_S, POLL_S * 2.0 ** min(failures, 12))
            if self._pause(wait):
                failures = 0

    def tick(self) -> float:
        """Send the next lines; the seconds until more are worth a look. Raises whatever the sink does."""
        if self._sink is None:
            sink = self._make()
            sink.open(self._about, self._cursor.kept)
            self._sink = sink
            if sink.resends:
                self._cursor = Cursor()
        lines, offset = read_after(self._outbox, self._cursor.offset)
        rows = [row for line in lines if (row := self._row(line)) is not None]
        kept = self._sink.write(rows) if rows else self._cursor.kept
        if lines:
            self._cursor = Cursor(lines[-1].seq, offset, kept)
            self._cursor.write(self._cursor_file)
            self._looked, self._ended = offset, self._ended or _end_in(lines)
            return 0.0
        if self._ended:
            self._sink.close(self._ended)
            self.finished.set()
        # Figures may have come together with the end, after the look at the lines.
        return 0.0 if self._sees_the_end() else POLL_S

    def _pause(self, seconds: float) -> bool:
        """Whether the attempt ended meanwhile, which cuts it short: little time is left for what a sink has refused."""
        until, knew = time.monotonic() + seconds, self._ended
        while (left := until - time.monotonic()) > 0 and not self.finished.wait(min(left, POLL_S)):
            if not knew and self._sees_the_end():
                return True
        return False

    def _row(self, line: Line) -> Row | None:
        return row_of(line) if line.kind in METRIC_KINDS and line.seq > self._cursor.seq else None

    def _sees_the_end(self) -> bool:
        """A process that was started again may have begun behind the line that says so, or can't get there."""
        while not self._ended:
            lines, after = read_after(self._outbox, self._looked)
            if after == self._looked:
                return False
            self._looked = after
            self._ended = _end_in(lines)
        return True


def _end_in(lines: Sequence[Line]) -> str:
    return next(filter(None, map(end_in, lines)), "")


def _in_words(error: Exception, key: str) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return (text.replace(key, "…") if key else text)[:LONGEST_PROBLEM]
