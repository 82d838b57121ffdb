"""Delivery of the outbox's lines to the control plane, whose responses are passed to the main thread.

Lines after the last confirmed one are always read from the outbox, whether the control plane was unavailable for ten
minutes or has lost its last minute.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from workers.contract.reports.lines import MAX_SYNC_PAUSE_S, Line, SyncAnswer, event_line, numbered
from workers.contract.wire.names import EventKind, StopMode
from workers.settings import HostSettings
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.chatfile import ChatFile
from workers.supervisor.reports.control import Control, ControlError, ControlRefused
from workers.supervisor.reports.outbox import Outbox

log = logging.getLogger(__name__)

BATCH_BYTES = 1 << 20
AWAKE_S = 2.0
"""Seconds for which a run is treated as watched after its page was opened, whatever responses say, because the web
processes learn of the page later."""
MAX_TIME = 4e9 - 1
"""Latest Unix time that the control plane accepts; a host's clock may be wrong."""
_UNKNOWN_STATUSES = frozenset({401, 403, 404, 409, 410})


class Syncer:
    """The syncs of one attempt. `tick` runs in the sync thread; the main thread calls `hurry` and `wake`, and reads the
    plain attributes. `chat`: the chat of a served model. `asks`: whether to ask who uses a warm server."""

    def __init__(
        self,
        attempt_id: str,
        outbox: Outbox,
        control: Control,
        settings: HostSettings,
        *,
        acked: int,
        on_response: Callable[[SyncAnswer], None],
        write_ack: Callable[[int], None],
        chat: ChatFile | None = None,
        asks: bool = False,
    ) -> None:
        self._asks = asks
        self._attempt_id = attempt_id
        self._outbox = outbox
        self._control = control
        self._settings = settings
        self._on_response = on_response
        self._write_ack = write_ack
        self._chat = chat
        self._offset = outbox.offset_after(acked)
        self._backoff = Backoff(settings.backoff_max_s)
        self._last_sent = float("-inf")
        self._not_before = float("-inf")
        self._refused_since: float | None = None
        self._urgent = threading.Event()
        self._woken = threading.Event()
        self._awake_until = float("-inf")
        self._again_s = 0.0
        """Seconds between requests that the control plane has asked for while nobody is watching."""
        self.acked = acked
        self.watched = False
        self.failing = False
        self.given_up = False
        """True if the control plane has refused this attempt as unknown for long enough."""

    def hurry(self) -> None:
        """Send the waiting lines immediately, because one of them is urgent."""
        self._urgent.set()

    def wake(self, now: float) -> None:
        """Send the waiting lines immediately, because somebody has opened the run's page."""
        self._awake_until = now + AWAKE_S
        self.watched = True
        self._woken.set()

    def is_drained(self) -> bool:
        return self.acked >= self._outbox.last_seq or self.given_up

    def tick(self, now: float) -> float:
        due_at = self._due(now)
        if now < due_at:
            return due_at - now
        self._urgent.clear()
        self._woken.clear()
        self._last_sent = now
        try:
            self._send()
        except ControlError as error:
            return self._wait_after(error, now)
        if self.failing:
            log.info("the control plane is responding again")
        self._backoff.succeeded()
        self.failing = self.given_up = False
        self._refused_since = None
        self._not_before = float("-inf")
        return max(0.0, self._due(now) - now)

    def _due(self, now: float) -> float:
        """Return when to send the next request: lines are sent in batches, with heartbeats between them."""
        if self._woken.is_set():
            due_at = self._last_sent + self._settings.batch_watched_s
        elif self.acked >= self._outbox.last_seq:
            is_chatting = self._chat is not None and self._chat.is_open
            due_at = self._last_sent + (self._settings.heartbeat_chat_s if is_chatting else self._settings.heartbeat_s)
        elif self.watched or self._urgent.is_set():
            due_at = self._last_sent + self._settings.batch_watched_s
        else:
            due_at = self._last_sent + max(self._settings.batch_s, self._again_s)
        return max(due_at, self._not_before)

    def _send(self) -> None:
        """Send the lines that are waiting now. Lines that are added meanwhile wait for the next batch: over a slow
        connection there would always be one more."""
        newest = self._outbox.last_seq
        while True:
            lines, next_offset = self._next_lines()
            response = self._deliver(lines)
            self._handle(response, next_offset if lines and response.ack == lines[-1].seq else None)
            if not lines or self.acked >= newest or self.acked < lines[-1].seq:
                return

    def _deliver(self, lines: Sequence[Line]) -> SyncAnswer:
        if self._chat is None:
            return deliver(self._control, self._attempt_id, lines, turns_after=0 if self._asks else None)
        response = deliver(self._control, self._attempt_id, lines, turns_after=self._chat.last_turn)
        if response.chat is not None:
            self._chat.write(response.chat)
        return response

    def _next_lines(self) -> tuple[list[Line], int]:
        if self.acked >= self._outbox.last_seq:
            return [], self._offset
        while True:
            lines, next_offset = self._outbox.read_after(self._offset, max_bytes=BATCH_BYTES)
            unconfirmed = [line for line in lines if line.seq > self.acked]
            if unconfirmed or next_offset == self._offset:
                return unconfirmed, next_offset
            self._offset = next_offset  # these lines reached the file after they were sent from memory

    def _handle(self, response: SyncAnswer, after: int | None) -> None:
        """Handle a response. `after`: the offset after the confirmed line; None if it must be searched for."""
        self.watched = response.watched or self._last_sent < self._awake_until
        self._again_s = min(response.again_s or 0.0, MAX_SYNC_PAUSE_S)
        if response.ack != self.acked:
            start = self._offset
            if response.ack < self.acked:
                log.warning("the control plane went back from line %d to %d", self.acked, response.ack)
                start = 0
            acked = max(response.ack, self._outbox.first_seq - 1)
            self._offset = self._outbox.offset_after(acked, start=start) if after is None else after
            self._write_ack(acked)
            self.acked = acked  # last, because the main thread may exit as soon as everything is confirmed
        self._on_response(response)

    def _wait_after(self, error: ControlError, now: float) -> float:
        if not self.failing:
            log.warning("the control plane cannot be reached, trying again: %s", error)
        self.failing = True
        if isinstance(error, ControlRefused) and error.is_revoked:
            self._on_response(SyncAnswer(ack=self.acked, stop=StopMode.NOW, watched=False))
        if isinstance(error, ControlRefused) and error.status in _UNKNOWN_STATUSES:
            self._refused_since = self._refused_since if self._refused_since is not None else now
            self.given_up = now - self._refused_since >= self._settings.refused_deadline_s
        else:
            self._refused_since, self.given_up = None, False
        wait = self._backoff.failed()
        self._not_before = now + wait
        return wait


def deliver(control: Control, attempt_id: str, lines: Sequence[Line], *, turns_after: int | None = None) -> SyncAnswer:
    """Send lines to the control plane and return its response. A refused batch is halved, down to a single line, which
    is then replaced by a note: a line that is never accepted must not hold up those after it. Raises ControlError if
    the control plane can't be reached, or refuses the host, the attempt or the note."""
    try:
        return control.sync(attempt_id, [line.text for line in lines], turns_after=turns_after)
    except ControlRefused as error:
        if error.status in _UNKNOWN_STATUSES or not lines:
            raise
        log.warning("a batch of %d lines was refused: %s", len(lines), error)
        if len(lines) == 1:
            return control.sync(attempt_id, [_replacement(lines[0], error)], turns_after=turns_after)
    first_half, second_half = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    response = deliver(control, attempt_id, first_half, turns_after=turns_after)
    return (
        response
        if response.ack < first_half[-1].seq
        else deliver(control, attempt_id, second_half, turns_after=turns_after)
    )


def _replacement(line: Line, error: ControlRefused) -> bytes:
    message = f"The control plane refused line {line.seq} ({line.kind}): {str(error)[:200]}"
    t = min(max(0.0, time.time()), MAX_TIME)  # its time or its step may be what was refused
    data = line.data()
    if line.kind == EventKind.ENDED and data is not None:
        data = {"reason": data["reason"], "detail": message, "exit_codes": {}, "receipt": data["receipt"]}
        return numbered(event_line(EventKind.ENDED, data, t=t), line.seq)
    return numbered(event_line(EventKind.NOTE, {"text": message, "level": "warning"}, t=t), line.seq)
