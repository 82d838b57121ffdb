"""Connections of clients that send or read too slowly are closed, and no others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from controlplane.setup.serving.client_deadlines import ClientDeadlines

HEAD = b"GET /%s HTTP/1.1\r\nHost: here\r\n"
POST = b"POST /%s HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"
LARGE = 32 * 2**20
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


HEADER, BODY, RESPONSE = ClientDeadlines.header_seconds, ClientDeadlines.body_seconds, ClientDeadlines.response_seconds


class Clock:
    """An event loop whose deadlines pass when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: dict[float, list[asyncio.TimerHandle]]) -> None:
        self._loop = loop
        self._deadlines = deadlines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        handle = self._loop.call_later(3600, callback)
        if seconds in self._deadlines:
            self._deadlines[seconds].append(handle)
        return handle


class Site:
    """Answers each request with the size of its body; one for /late only once `release` is set; one for /unread doesn't
    read its body; one for /large is answered with LARGE bytes at once. Websockets echo."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.received = 0
        self.protocols: list[ClientDeadlines] = []
        self.port = 0
        self.streams: list[Stream] = []
        self.deadlines: dict[float, list[asyncio.TimerHandle]] = {HEADER: [], BODY: [], RESPONSE: []}

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"]})
            return
        if scope["path"] in ("/late", "/unread"):
            await self.release.wait()
        if scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
            await send({"type": "http.response.body", "body": bytes(LARGE)})
            return
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
            self.received = size
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"%02d" % size})

    def protocol(self, **options: Any) -> ClientDeadlines:
        protocol = ClientDeadlines(**options)
        self.protocols.append(protocol)
        protocol.loop = Clock(protocol.loop, self.deadlines)  # type: ignore[assignment]
        return protocol

    def is_full(self) -> bool:
        """No more of a body is read before the application takes it."""
        return any(protocol.flow and protocol.flow.read_paused for protocol in self.protocols)

    async def open(self, data: bytes = b"") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.streams.append((reader, writer))
        writer.write(data)
        return reader, writer

    async def deadlines_running(self, count: int, begun: int, kind: float = HEADER) -> None:
        timers = self.deadlines[kind]
        while len(timers) < begun or sum(not timer.cancelled() for timer in timers) != count:
            await asyncio.sleep(0)

    def deadlines_pass(self, kind: float = HEADER) -> None:
        for timer in list(self.deadlines[kind]):
            if not timer.cancelled():
                timer._run()  # type: ignore[attr-defined]
                timer.cancel()


@asynccontextmanager
async def served() -> AsyncIterator[Site]:
    site = Site()
    config = uvicorn.Config(site, http=site.protocol, lifespan="off", log_level="warning")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connections wait there until it serves
        serving = asyncio.create_task(server.serve([listener]))
        site.port = listener.getsockname()[1]
        try:
            async with asyncio.timeout(30):
                yield site
        finally:
            for _, writer in site.streams:
                writer.close()
            server.should_exit = server.force_exit = True
            await serving


async def rest(stream: Stream) -> bytes:
    try:
        return await stream[0].read()
    except ConnectionResetError:  # closed before it had read what we sent
        return b""


async def answer(stream: Stream) -> bytes:
    await stream[0].readuntil(b"\r\n\r\n")
    return await stream[0].readexactly(2)


@pytest.mark.parametrize("data", [b"", b"\r\n", b"GET / HT", HEAD % b"" + b"X-Slow: "])
def test_a_connection_without_a_whole_header_is_closed(data: bytes) -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(data)
            await site.deadlines_running(1, begun=1)
            site.deadlines_pass()
            assert await rest(stream) == b""

    asyncio.run(check())


@pytest.mark.parametrize("data", [b"\r\n", b"GET / HT"])
def test_so_is_a_kept_connection_whose_next_header_does_not_come(data: bytes) -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(HEAD % b"" + b"\r\n")
            assert await answer(stream) == b"00"
            stream[1].write(data)
            await site.deadlines_running(1, begun=2)
            site.deadlines_pass()
            assert await rest(stream) == b""

    asyncio.run(check())


def test_late_answers_slow_bodies_and_idle_kept_connections_stay_open() -> None:
    async def check() -> None:
        async with served() as site:
            late = await site.open(HEAD % b"late" + b"\r\n")
            slow = await site.open(POST % (b"", 4) + b"ab")
            kept = await site.open(HEAD % b"" + b"\r\n")
            assert await answer(kept) == b"00"
            await site.deadlines_running(0, begun=3)
            site.release.set()
            slow[1].write(b"cd")
            kept[1].write(HEAD % b"" + b"\r\n")
            assert [await answer(stream) for stream in (late, slow, kept)] == [b"00", b"04", b"00"]

    asyncio.run(check())


def test_a_websocket_has_no_deadline() -> None:
    async def check() -> None:
        async with served() as site, connect(f"ws://127.0.0.1:{site.port}/", compression=None) as websocket:
            await websocket.send("hello")
            assert await websocket.recv() == "hello"
            await site.deadlines_running(0, begun=1)

    asyncio.run(check())


@pytest.mark.parametrize("sent", [b"", b"x" * 100])
def test_a_body_that_makes_no_progress_is_given_up(sent: bytes) -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(POST % (b"", 10**6) + sent)
            await site.deadlines_running(1, begun=1, kind=BODY)
            site.deadlines_pass(BODY)
            assert await rest(stream) == b""

    asyncio.run(check())


@pytest.mark.parametrize("path", [b"", b"unread"])
def test_a_body_that_makes_progress_or_is_not_read_here_may_take_long(path: bytes) -> None:
    async def check() -> None:
        async with served() as site:
            size = 4 * 2**20
            stream = await site.open(POST % (path, size) + bytes(2**20))
            for begun in (2, 3):
                while path and not site.is_full():
                    await asyncio.sleep(0)
                while not path and site.received < (begun - 1) * 2**20:
                    await asyncio.sleep(0)
                site.deadlines_pass(BODY)
                await site.deadlines_running(1, begun=begun, kind=BODY)
                stream[1].write(bytes(2**20))
            site.release.set()
            stream[1].write(bytes(2**20))
            assert (await stream[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert site.received == size

    asyncio.run(check())


def test_a_response_that_its_client_does_not_read_is_given_up_and_one_that_is_read_slowly_is_not() -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(HEAD % b"large" + b"\r\n")
            await site.deadlines_running(1, begun=1, kind=RESPONSE)
            read = len(await stream[0].readexactly(4 * 2**20))
            site.deadlines_pass(RESPONSE)
            await site.deadlines_running(1, begun=2, kind=RESPONSE)
            [protocol] = site.protocols
            while not protocol.transport.is_closing():  # once the system's buffers are full
                site.deadlines_pass(RESPONSE)
                await asyncio.sleep(0)
            assert read + len(await rest(stream)) < LARGE

    asyncio.run(check())


def test_a_small_response_that_was_read_leaves_no_deadline_for_the_next_one() -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(HEAD % b"large" + b"\r\n")
            await site.deadlines_running(1, begun=1, kind=RESPONSE)
            await stream[0].readuntil(b"\r\n\r\n")
            await stream[0].readexactly(LARGE)
            await site.deadlines_running(0, begun=1, kind=RESPONSE)
            stream[1].write(HEAD % b"" + b"\r\n")
            assert await answer(stream) == b"00"
            await site.deadlines_running(0, begun=1, kind=RESPONSE)

    asyncio.run(check())


def test_whatever_is_left_of_a_small_response_has_a_deadline() -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(HEAD % b"late" + b"\r\n")
            while not site.protocols or not site.protocols[0].cycle:
                await asyncio.sleep(0)
            [protocol] = site.protocols
            protocol.transport.get_extra_info("socket")  # the connection is open
            writing = protocol.transport
            writing.write(bytes(LARGE))  # what the client doesn't read before its small response
            await site.deadlines_running(1, begun=1, kind=RESPONSE)
            site.release.set()
            await stream[0].readexactly(LARGE)
            assert await answer(stream) == b"00"
            await site.deadlines_running(0, begun=1, kind=RESPONSE)

    asyncio.run(check())


def test_the_rest_of_an_answered_bodys_connection_has_one_deadline_however_fast_it_comes() -> None:
    async def check() -> None:
        async with served() as site:
            stream = await site.open(POST % (b"large", 10**9) + bytes(2**20))
            await stream[0].readuntil(b"\r\n\r\n")
            await stream[0].readexactly(LARGE)
            stream[1].write(bytes(2**20))
            await site.deadlines_running(1, begun=2, kind=BODY)
            site.deadlines_pass(BODY)
            assert await rest(stream) == b""

    asyncio.run(check())
