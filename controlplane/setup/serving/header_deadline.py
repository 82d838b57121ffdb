"""The web's HTTP protocol, which closes connections that don't send a complete request header in time."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HeaderDeadline(HttpToolsProtocol):
    """A protocol that closes a connection after waiting `header_seconds` for a complete request header.

    Otherwise the idle connections of one client, each with an open file, could keep everybody out. uvicorn's keep-alive
    timeout only begins after a response, and ends with any byte.
    """

    header_seconds: ClassVar[float] = 30.0
    _timer: asyncio.TimerHandle | None = None
    _in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        has_responded = self.cycle is None or self.cycle.response_complete
        if has_responded and not self._in_body and self.timeout_keep_alive_task is None:
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
        is_open_http = self in self.connections  # not once it is a websocket, or closed
        if self._timer is None and is_open_http:
            self._timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
