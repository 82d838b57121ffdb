"""The web's HTTP protocol, which closes the connections of clients that send or read too slowly."""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class ClientDeadlines(HttpToolsProtocol):
    """A protocol with a deadline for a complete request header, and for progress of a request's body and of a response.
    The rest of a body whose request has been answered, which nobody reads, has only one deadline.

    Otherwise the slow connections of one client, each with an open file, could keep everybody out. uvicorn's keep-alive
    timeout only begins after a response, and ends with any byte.
    """

    header_seconds: ClassVar[float] = 30.0
    body_seconds: ClassVar[float] = 60.0
    response_seconds: ClassVar[float] = 90.0
    min_bytes: ClassVar[int] = 16 * 2**10
    """Number of bytes of a body or a response that a client must send or read before a deadline to get another one."""
    _in_body = False
    _body_bytes = _unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Whatever the client hasn't read pauses writing, so that the response's timer ends once all is read.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        self._expect_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        has_responded = self.cycle is None or self.cycle.response_complete
        if has_responded and not self._in_body and self.timeout_keep_alive_task is None:
            self._expect_header()

    def on_headers_complete(self) -> None:
        self._in_body, self._body_bytes = True, 0
        super().on_headers_complete()
        self._start("request", self.body_seconds, self._check_body)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._stop("request")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete:
            self._start("request", self.body_seconds, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("response")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop("request")
        self._stop("response")
        super().connection_lost(exc)

    def _expect_header(self) -> None:
        is_open_http = self in self.connections  # not once it is a websocket, or closed
        if "request" not in self._timers and is_open_http:
            self._start("request", self.header_seconds, self.transport.close)

    def _check_body(self) -> None:
        is_ours = self.flow.read_paused or bool(self.cycle and self.cycle.waiting_for_100_continue)
        if not is_ours and self._body_bytes < self.min_bytes:
            self.transport.close()
        else:
            self._body_bytes = 0
            self._start("request", self.body_seconds, self._check_body)

    def _expect_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._start("response", self.response_seconds, self._check_reader)

    def _check_reader(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if not unread_bytes:
            self._stop("response")
        elif self._unread_bytes - unread_bytes < self.min_bytes:
            self.transport.abort()
        else:
            self._expect_reader()

    def _start(self, name: str, seconds: float, at_end: Callable[[], None]) -> None:
        self._stop(name)
        self._timers[name] = self.loop.call_later(seconds, at_end)

    def _stop(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()
