"""Upload of log bytes by (attempt, file, offset): live while watched, otherwise in batches.

Each log's head is sent as it grows. Beyond it, while the run is watched, the newest bytes are sent within a budget: all
bytes of a slow log, occasional windows of a fast log. The tail is sent at the end. Notes in the stream say how much was
omitted. The uploads form one stream of bytes from 0, whatever was omitted (`logparts`).
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from workers.contract.wire.names import LOG_LEFT_OUT, LOG_NAMES
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, ControlError, ControlRefused
from workers.supervisor.reports.logparts import LogSection, LogSections

log = logging.getLogger(__name__)

REQUEST_BYTES = 512 * 1024
MIN_WINDOW = 2048
MIN_WINDOWS = 1024
"""Minimum number of windows into which the remaining budget is divided, unless they would be shorter than
MIN_WINDOW."""
SPREAD_S = 4096.0
"""Seconds in which the current rate would use up the remaining budget. The rate falls with the budget, so that a log
watched for hours still moves. After a full window there is a pause of four seconds."""
TOO_LONG_NOTE = (
    f"[This log is too long to follow any further. Its last part is sent when the run ends{LOG_LEFT_OUT}\n".encode()
)


@dataclass
class _LogStream:
    name: str
    sections: LogSections
    sent: int = 0
    """Number of bytes of the stream that the control plane has."""
    promised: int = 0
    """Number of bytes of the stream that were sent, confirmed or not; up to here, retries send the same bytes."""
    live_at: float = float("-inf")
    is_exhausted: bool = False
    """True if the budget for windows is used up and the stream says so."""
    refused: bool = False
    fd: int | None = None
    """Descriptor of the file, opened once it exists, so that a removed log is still sent to its end."""


class LogUploader:
    """The uploader of all logs of one attempt; `tick` is for a Loop."""

    def __init__(
        self,
        attempt_id: str,
        folder: AttemptFolder,
        control: Control,
        settings: HostSettings,
        *,
        watched: Callable[[], bool],
        hold: Callable[[], bool],
    ) -> None:
        self._attempt_id = attempt_id
        self._folder = folder
        self._control = control
        self._settings = settings
        self._watched = watched
        self._hold = hold
        self._streams = [_LogStream(name, LogSections(name, folder)) for name in LOG_NAMES]
        self._backoff = Backoff(settings.backoff_max_s)
        self._closing = False
        self._next_at = float("-inf")
        self.drained = False
        """True if all processes have ended and their logs have been sent. Set by the sending thread."""

    def close(self) -> None:
        """Switch to sending the tails, because all processes have ended and the files are complete."""
        self._closing = True

    def release(self) -> None:
        """Close the files, for a program that outlives the attempt."""
        for stream in self._streams:
            if stream.fd is not None:
                os.close(stream.fd)
                stream.fd = None

    def tick(self, now: float) -> float:
        self._open()  # even while the control plane is unavailable, since the files may be removed
        if self._hold() or (now < self._next_at and not self._watched() and not self._closing):
            return self._settings.log_batch_watched_s
        closing = self._closing
        try:
            pending = [self._send_some(stream, now) for stream in self._streams]
        except ControlError:
            return self._backoff.failed()
        self._backoff.succeeded()
        if any(pending):
            return 0.0
        self._next_at = now + self._settings.log_batch_s
        self.drained = closing
        return self._settings.log_batch_watched_s

    def _open(self) -> None:
        for stream in self._streams:
            if stream.fd is None:
                with suppress(OSError):  # there is no such process (yet), or the disk fails
                    stream.fd = os.open(self._folder.log(stream.name), os.O_RDONLY | os.O_CLOEXEC)

    def _send_some(self, stream: _LogStream, now: float) -> bool:
        data = b"" if stream.refused else self._next_bytes(stream, now)
        if not data:
            return False
        stream.promised = max(stream.promised, stream.sent + len(data))
        try:
            size = self._control.send_log(self._attempt_id, stream.name, offset=stream.sent, data=data)
        except ControlRefused as error:
            log.warning("the %s log is no longer sent: %s", stream.name, error)
            stream.refused = True
            return False
        if size == stream.sent:
            raise ControlError(f"the {stream.name} log does not grow")
        stream.sent = size
        return self._closing or len(data) == REQUEST_BYTES

    def _next_bytes(self, stream: _LogStream, now: float) -> bytes:
        if stream.fd is None:
            return b""
        try:
            room = self._room(stream, stream.fd, now)
            return stream.sections.read(stream.fd, stream.sent, min(room, REQUEST_BYTES)) if room > 0 else b""
        except OSError as error:
            log.warning("the %s log is no longer sent: %s", stream.name, error)
            stream.refused = True
            return b""

    def _room(self, stream: _LogStream, fd: int, now: float) -> int:
        """Return how many bytes may be sent now; beyond the head, begin a new section if necessary."""
        settled_until = max(stream.promised, stream.sections.last.at)
        if stream.sent < settled_until:
            return settled_until - stream.sent
        cap = self._settings.log_cap_bytes
        if stream.sent < cap:
            return cap - stream.sent
        size = os.fstat(fd).st_size
        behind = size - stream.sections.file_position(stream.sent)
        if not self._closing:
            return self._live_room(stream, fd, size, behind, now)
        if behind > cap:
            self._leave_out(stream, fd, behind - cap, unrecorded=True)
        return REQUEST_BYTES

    def _live_room(self, stream: _LogStream, fd: int, size: int, behind: int, now: float) -> int:
        if behind <= 0 or stream.is_exhausted or now < stream.live_at or not self._watched():
            return 0
        budget_left = self._settings.log_cap_bytes + self._settings.log_live_bytes - stream.sent
        if budget_left < 2 * MIN_WINDOW:
            stream.is_exhausted = self._begin(stream, fd, TOO_LONG_NOTE, stream.sections.file_position(stream.sent))
            return len(stream.sections.last.note) if stream.is_exhausted else 0
        window = min(max(budget_left // MIN_WINDOWS, MIN_WINDOW), REQUEST_BYTES)
        stream.live_at = now + min(behind, window) * SPREAD_S / budget_left
        if behind <= window:
            return behind
        has_begun = self._leave_out(stream, fd, behind - window + _to_line_start(fd, size - window, window // 2))
        return len(stream.sections.last.note) + window if has_begun else 0

    def _leave_out(self, stream: _LogStream, fd: int, count: int, *, unrecorded: bool = False) -> bool:
        note = f"[{count} bytes left out here{LOG_LEFT_OUT}\n".encode()
        start = stream.sections.file_position(stream.sent) + count
        return self._begin(stream, fd, note, start, unrecorded=unrecorded)

    def _begin(self, stream: _LogStream, fd: int, note: bytes, start: int, *, unrecorded: bool = False) -> bool:
        end = stream.sections.file_position(stream.sent)
        separator = b"" if end and os.pread(fd, 1, end - 1) == b"\n" else b"\n"
        return stream.sections.begin(LogSection(stream.sent, separator + note, start), unrecorded=unrecorded)


def _to_line_start(fd: int, start: int, limit: int) -> int:
    """Return the number of bytes from `start` to the beginning of the next line, or 0 if none begins within `limit`."""
    data = os.pread(fd, limit, start)
    return data.find(b"\n") + 1 or data.find(b"\r") + 1
