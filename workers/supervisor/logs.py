"""Log bytes to the control plane by (attempt, file, offset): live while watched, else gathered.

Of a file larger than twice the cap, the head is sent as it grows and the tail at the end, with a line between them
that says how much was left out. What is sent is one stream of bytes from 0, whatever was left out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from workers.contract import LOG_NAMES
from workers.settings import HostSettings
from workers.supervisor.control import Control, ControlError, Refused
from workers.supervisor.folder import AttemptFolder
from workers.supervisor.loops import Backoff

log = logging.getLogger(__name__)

REQUEST_BYTES = 512 * 1024


@dataclass
class _Stream:
    name: str
    sent: int = 0
    """Bytes of the stream the control plane has."""
    skipped: int | None = None
    """Bytes of the file left out between head and tail, once decided."""
    marker: bytes = b""
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
        self._streams = [_Stream(name) for name in LOG_NAMES]
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
            more = [self._send_some(stream) for stream in self._streams]
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

    def _send_some(self, stream: _Stream) -> bool:
        """Send one request's worth; True if more is waiting."""
        data = b"" if stream.refused else self._next_bytes(stream)
        if not data:
            return False
        try:
            size = self._control.send_log(self._attempt_id, stream.name, offset=stream.sent, data=data)
        except Refused as error:
            log.warning("the %s log is not sent any more: %s", stream.name, error)
            stream.refused = True
            return False
        if size == stream.sent:
            raise ControlError(f"the {stream.name} log does not grow")
        stream.sent = size
        return bool(self._next_bytes(stream))

    def _next_bytes(self, stream: _Stream) -> bytes:
        try:
            return b"" if stream.fd is None else self._slice(stream, stream.fd, os.fstat(stream.fd).st_size)
        except OSError as error:
            log.warning("the %s log is not sent any more: %s", stream.name, error)
            stream.refused = True
            return b""

    def _slice(self, stream: _Stream, fd: int, size: int) -> bytes:
        cap = self._settings.log_cap_bytes
        if stream.sent < cap:
            return os.pread(fd, min(REQUEST_BYTES, cap - stream.sent), stream.sent)
        if not self._closing:
            return b""
        if stream.skipped is None:
            stream.skipped = max(0, size - 2 * cap)
            if stream.skipped:
                stream.marker = f"\n[{stream.skipped} bytes left out; the host has the whole file]\n".encode()
        into = stream.sent - cap
        if into < len(stream.marker):
            return stream.marker[into:]
        return os.pread(fd, REQUEST_BYTES, stream.sent - len(stream.marker) + stream.skipped)
