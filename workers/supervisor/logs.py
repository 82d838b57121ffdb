"""Log bytes to the control plane by (attempt, file, offset): live while watched, else gathered.

Of each log the head is sent as it grows. Past it, while somebody watches the run, the newest stretch goes: all of a
slow log, of a fast one a window now and then, from a budget. At the end the tail goes. Words in the stream say how much
was left out. What is sent is one stream of bytes from 0, whatever was left out (`logparts`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from workers.contract import LOG_LEFT_OUT, LOG_NAMES
from workers.host.settings import HostSettings
from workers.supervisor.control import Control, ControlError, Refused
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.logparts import LogSection, Parts
from workers.supervisor.loops import Backoff

log = logging.getLogger(__name__)

REQUEST_BYTES = 512 * 1024
LEAST_WINDOW = 2048
WINDOWS = 1024
"""A window past the head is at most so small a part of what is left of the budget, yet about a screen of lines."""
SPREAD_S = 4096.0
"""What is left of the budget would last for so long at the rate at which it is spent: the rate falls with it, so that
a log that is watched for hours still moves. A full window is followed by a pause of four seconds."""
OVER = f"[This log is too long to be followed further: its last part comes when the run ends{LOG_LEFT_OUT}\n".encode()


@dataclass
class _Stream:
    name: str
    parts: Parts
    sent: int = 0
    """Bytes of the stream the control plane has."""
    promised: int = 0
    """Bytes of it that were sent, whether or not an answer came: up to here the same ones are sent again."""
    live_at: float = float("-inf")
    """When the next window may go."""
    over: bool = False
    """The budget for windows is used up, and that is said."""
    refused: bool = False
    fd: int | None = None
    """Open from its first bytes on: a log that was removed is still sent to its end."""


class LogUploader:
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
        self._streams = [_Stream(name, Parts(name, folder)) for name in LOG_NAMES]
        self._backoff = Backoff(settings.backoff_max_s)
        self._closing = False
        self._next_at = float("-inf")
        self.drained = False
        """The processes are gone, and what shall be sent of their logs is sent. Set by the thread that sends."""

    def close(self) -> None:
        """The processes are gone: the files grow no more, so the tails can go."""
        self._closing = True

    def release(self) -> None:
        """For a program that outlives the attempt."""
        for stream in self._streams:
            if stream.fd is not None:
                os.close(stream.fd)
                stream.fd = None

    def tick(self, now: float) -> float:
        self._open()  # while the control plane is away too: the files may be gone when it is back
        if self._hold() or (now < self._next_at and not self._watched() and not self._closing):
            return self._settings.log_batch_watched_s
        closing = self._closing
        try:
            more = [self._send_some(stream, now) for stream in self._streams]
        except ControlError:
            return self._backoff.failed()
        self._backoff.succeeded()
        if any(more):
            return 0.0
        self._next_at = now + self._settings.log_batch_s
        self.drained = closing
        return self._settings.log_batch_watched_s

    def _open(self) -> None:
        for stream in self._streams:
            if stream.fd is None:
                try:
                    stream.fd = os.open(self._folder.log(stream.name), os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue  # no process of that name was started, or not yet; or the disk is in trouble

    def _send_some(self, stream: _Stream, now: float) -> bool:
        """Send one request's worth; True if more may be waiting."""
        data = b"" if stream.refused else self._next_bytes(stream, now)
        if not data:
            return False
        stream.promised = max(stream.promised, stream.sent + len(data))
        try:
            size = self._control.send_log(self._attempt_id, stream.name, offset=stream.sent, data=data)
        except Refused as error:
            log.warning("the %s log is not sent any more: %s", stream.name, error)
            stream.refused = True
            return False
        if size == stream.sent:
            raise ControlError(f"the {stream.name} log does not grow")
        stream.sent = size
        return self._closing or len(data) == REQUEST_BYTES

    def _next_bytes(self, stream: _Stream, now: float) -> bytes:
        if stream.fd is None:
            return b""
        try:
            room = self._room(stream, stream.fd, now)
            return stream.parts.read(stream.fd, stream.sent, min(room, REQUEST_BYTES)) if room > 0 else b""
        except OSError as error:
            log.warning("the %s log is not sent any more: %s", stream.name, error)
            stream.refused = True
            return b""

    def _room(self, stream: _Stream, fd: int, now: float) -> int:
        """How many bytes may go now; past the head, another part may begin with them."""
        settled = max(stream.promised, stream.parts.last.at)
        if stream.sent < settled:
            return settled - stream.sent
        cap = self._settings.log_cap_bytes
        if stream.sent < cap:
            return cap - stream.sent
        size = os.fstat(fd).st_size
        behind = size - stream.parts.reached(stream.sent)
        if not self._closing:
            return self._live_room(stream, fd, size, behind, now)
        if behind > cap:
            self._leave_out(stream, fd, behind - cap, unrecorded=True)
        return REQUEST_BYTES

    def _live_room(self, stream: _Stream, fd: int, size: int, behind: int, now: float) -> int:
        if behind <= 0 or stream.over or now < stream.live_at or not self._watched():
            return 0
        left = self._settings.log_cap_bytes + self._settings.log_live_bytes - stream.sent
        if left < 2 * LEAST_WINDOW:
            stream.over = self._begin(stream, fd, OVER, stream.parts.reached(stream.sent))
            return len(stream.parts.last.words) if stream.over else 0
        window = min(max(left // WINDOWS, LEAST_WINDOW), REQUEST_BYTES)
        stream.live_at = now + min(behind, window) * SPREAD_S / left
        if behind <= window:
            return behind
        begun = self._leave_out(stream, fd, behind - window + _to_line_start(fd, size - window, window // 2))
        return len(stream.parts.last.words) + window if begun else 0

    def _leave_out(self, stream: _Stream, fd: int, count: int, *, unrecorded: bool = False) -> bool:
        words = f"[{count} bytes left out here{LOG_LEFT_OUT}\n".encode()
        return self._begin(stream, fd, words, stream.parts.reached(stream.sent) + count, unrecorded=unrecorded)

    def _begin(self, stream: _Stream, fd: int, words: bytes, start: int, *, unrecorded: bool = False) -> bool:
        reached = stream.parts.reached(stream.sent)
        between = b"" if reached and os.pread(fd, 1, reached - 1) == b"\n" else b"\n"
        return stream.parts.begin(LogSection(stream.sent, between + words, start), unrecorded=unrecorded)


def _to_line_start(fd: int, start: int, most: int) -> int:
    """Bytes from `start` to where a line begins; 0 if none does within so many."""
    data = os.pread(fd, most, start)
    return data.find(b"\n") + 1 or data.find(b"\r") + 1
