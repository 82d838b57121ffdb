"""Connections that send no whole request header in time are closed, and no others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from controlplane.setup.serving.header_deadline import HeaderDeadline

HEAD = b"GET /%s HTTP/1.1\r\nHost: here\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clock:
    """An event loop whose header deadlines pass when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: list[asyncio.TimerHandle]) -> None:
        self._loop = loop
        self._deadlines = deadlines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        handle = self._loop.call_later(3600, callback)
        if seconds == HeaderDeadline.header_seconds:
            self._deadlines.append(handle)
        return handle


class Site:
    """Answers each request with the size of its body; one for /late only once `release` is set. Websockets echo."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.port = 0
        self.streams: list[Stream] = []
        self.deadlines: list[asyncio.TimerHandle] = []

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"]})
            return
        if scope["path"] == "/late":
            await self.release.wait()
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"%02d" % size})

    def protocol(self, **options: Any) -> HeaderDeadline:
        protocol = HeaderDeadline(**options)
        protocol.loop = Clock(protocol.loop, self.deadlines)  # type: ignore[assignment]
        return protocol

    async def open(self, data: bytes = b"") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.streams.append((reader, writer))
        writer.write(data)
        return reader, writer

    async def deadlines_running(self, count: int, begun: int) -> None:
        while len(self.deadlines) < begun or sum(not timer.cancelled() for timer in self.deadlines) != count:
            await asyncio.sleep(0)

    def deadlines_pass(self) -> None:
        for timer in self.deadlines:
            if not timer.cancelled():
                timer._run()  # type: ignore[attr-defined]


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
            slow = await site.open(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nab")
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
