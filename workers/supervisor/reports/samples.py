"""Upload of completions: the lines of samples.jsonl, in separate requests after the metrics."""

import logging
from collections.abc import Callable
from pathlib import Path

from workers.contract.reports.lines import object_of
from workers.settings import HostSettings
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, ControlError, ControlRefused
from workers.supervisor.reports.tail import Tail

log = logging.getLogger(__name__)

BATCH_LINES = 64


class SampleUploader:
    """The uploader of one attempt's completions; `tick` is for a Loop. Lines are numbered from 1; the control plane's
    ack is the number of lines that it has."""

    def __init__(
        self, attempt_id: str, path: Path, control: Control, settings: HostSettings, *, hold: Callable[[], bool]
    ) -> None:
        self._attempt_id = attempt_id
        self._control = control
        self._settings = settings
        self._hold = hold
        self._tail = Tail(path, _valid_line)
        self._backoff = Backoff(settings.backoff_max_s)
        self._pending: list[bytes] = []
        self._first_line = 1
        self._closing = False
        self.refused = False
        self.drained = False
        """True if the trainer has ended and the control plane has every line. Set by the sending thread."""

    def close(self) -> None:
        """Record that the trainer has ended, so that the file is complete."""
        self._closing = True

    def release(self) -> None:
        """Close the file, for a program that outlives the attempt."""
        self._tail.close()

    def tick(self, now: float) -> float:
        if self.refused or self._hold():
            return self._settings.batch_s
        closing = self._closing  # read first: the file's content is final afterwards
        try:
            has_more = self._send_some()
        except ControlRefused as error:
            log.warning("completions are no longer sent: %s", error)
            self.refused = True
            return self._settings.batch_s
        except ControlError:
            return self._backoff.failed()
        self._backoff.succeeded()
        self.drained = closing and not has_more
        return 0.0 if has_more else self._settings.batch_s

    def _send_some(self) -> bool:
        if not self._pending:
            # Read only now, so that waiting lines don't grow into a batch that is too large for the control plane.
            self._pending = self._tail.read()
        if self._pending:
            self._send()
        # A group of long completions spans several chunks of the file.
        return bool(self._pending) or not self._tail.is_at_end()

    def _send(self) -> None:
        batch = self._pending[:BATCH_LINES]
        ack = self._control.send_samples(self._attempt_id, first_line=self._first_line, lines=batch)
        # An ack before our first line would require lines that are no longer in memory; the control plane keeps lines.
        acked_count = max(0, min(len(self._pending), ack - self._first_line + 1))
        if not acked_count:
            raise ControlRefused(200, f"line {self._first_line} was not stored (ack {ack})")
        self._first_line += acked_count
        del self._pending[:acked_count]


def _valid_line(line: bytes) -> bytes | None:
    # Lines are sent unchanged, so an invalid line would make the whole request invalid.
    return line if object_of(line) is not None else None
