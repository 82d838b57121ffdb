"""Follows the outbox for one sink: reads lines, writes rows, stores the cursor, and retries with growing pauses."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from workers.contract.reports.lines import Line
from workers.contract.wire.names import METRIC_KINDS
from workers.sinks.outbox import Cursor, end_in, read_after
from workers.sinks.sink import About, Sink, row_of

POLL_S = 0.5
LONGEST_PAUSE_S = 60.0
LAST_TRIES = 3
"""Consecutive failures after which a sink is given up, once the attempt has ended."""
LONGEST_PROBLEM = 300


class Follower:
    """Sends the rows of one attempt to one sink."""

    def __init__(self, outbox: Path, cursor: Path, make: Callable[[], Sink], about: About) -> None:
        self._outbox, self._cursor_file = outbox, cursor
        self._make, self._about = make, about
        self._cursor = Cursor.read(cursor)
        self._sink: Sink | None = None
        self._ended = ""
        """The attempt's end reason, once it is in the outbox."""
        self._searched = 0
        """The offset up to which the end was searched."""
        self.finished = threading.Event()
        self.problem = ""
        """Why the last try failed, as a sentence for people."""

    def run(self) -> None:
        """Follow until the end. Called in a separate thread."""
        failures = 0
        while not self.finished.is_set():
            try:
                wait, failures = self.tick(), 0
                self.problem = ""
            except Exception as error:
                failures += 1
                words = " ".join(f"{type(error).__name__}: {error}".split())
                self.problem = (words.replace(self._about.key, "…") if self._about.key else words)[:LONGEST_PROBLEM]
                print(self.problem, traceback.format_exc().replace(self._about.key or "\0", "…"), flush=True)
                self._sink = None
                if self._ended and failures >= LAST_TRIES:
                    self.finished.set()
                wait = min(LONGEST_PAUSE_S, POLL_S * 2.0 ** min(failures, 12))
            if self._pause(wait):
                failures = 0

    def tick(self) -> float:
        """Send the next lines; return the seconds until the next tick. Raises any exception of the sink."""
        if self._sink is None:
            sink = self._make()
            sink.open(self._about, self._cursor.kept)
            self._sink = sink
            if sink.resends:
                self._cursor = Cursor()
        lines, offset = read_after(self._outbox, self._cursor.offset)
        fresh = [line for line in lines if line.kind in METRIC_KINDS and line.seq > self._cursor.seq]
        rows = [row for line in fresh if (row := row_of(line)) is not None]
        kept = self._sink.write(rows) if rows else self._cursor.kept
        if lines:
            self._cursor = Cursor(lines[-1].seq, offset, kept)
            self._cursor.write(self._cursor_file)
            self._searched, self._ended = offset, self._ended or _end_in(lines)
            return 0.0
        if self._ended:
            self._sink.close(self._ended)
            self.finished.set()
        # Figures may have arrived together with the end, after the lines were read.
        return 0.0 if self._has_ended() else POLL_S

    def _pause(self, seconds: float) -> bool:
        """Wait; return early with True if the attempt ends meanwhile, since little time is left to retry."""
        until, ended_before = time.monotonic() + seconds, self._ended
        while (left := until - time.monotonic()) > 0 and not self.finished.wait(min(left, POLL_S)):
            if not ended_before and self._has_ended():
                return True
        return False

    def _has_ended(self) -> bool:
        """Search for the end, which a restarted process may have passed, and a failing sink may not reach."""
        while not self._ended:
            lines, after = read_after(self._outbox, self._searched)
            if after == self._searched:
                return False
            self._searched = after
            self._ended = _end_in(lines)
        return True


def _end_in(lines: Sequence[Line]) -> str:
    return next(filter(None, map(end_in, lines)), "")
