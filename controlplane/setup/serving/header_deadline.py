"""The web's HTTP protocol, which closes a connection that doesn't send a whole request header in time."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HeaderDeadline(HttpToolsProtocol):
    """A protocol that closes a connection `header_seconds` after it has begun to wait for a request header.

    Otherwise the idle connections of one client, each with an open file, could keep everybody out. uvicorn's time-out
    of kept connections only begins after an answer, and ends with any byte.
    """

    header_seconds: ClassVar[float] = 30.0
    _timer: asyncio.TimerHandle | None = None
    _in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and not self._in_body and self.timeout_keep_alive_task is None:
            self._expect_header()

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_header(self) -> None:
        is_ours = self in self.connections  # not once it is a websocket, or closed
        if self._timer is None and is_ours:
            self._timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
