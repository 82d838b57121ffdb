"""A real uvicorn, real sockets and a real Valkey: what a browser does that hardly reads, or hardly hears."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvicorn
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from pytest_django import Settings
from websockets.asyncio.client import ClientConnection, connect

from controlplane.asgi import application
from runs.engine.models import Attempt
from runs.engine.states import RunStatus
from runs.insight.live import pump
from runs.intake.host_api import ingest
from tests.runs.builders import a_user, an_attempt, train

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sent", "redis_url")]
ROWS, METRICS = 20_000, 20


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt(RunStatus.RUNNING)


@pytest.fixture
def cookie() -> str:
    client = Client()
    client.force_login(a_user())
    return client.cookies[settings.SESSION_COOKIE_NAME].value


@pytest.fixture
def port(settings: Settings) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, loop="asyncio", lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = server.force_exit = True
    thread.join()
    listener.close()


@dataclass
class Trickle:
    """A TCP proxy that lets one byte a second through to the browser, until it is opened."""

    to_port: int
    open: asyncio.Event = field(default_factory=asyncio.Event)
    slow: bool = False
    let_through: int = 0
    """Bytes since it became slow."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = socket.socket()
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        upstream.connect(("127.0.0.1", self.to_port))
        there, out = await asyncio.open_connection(sock=upstream, limit=2048)
        up = asyncio.create_task(self._up(reader, out))
        while data := await there.read(1 if self.slow and not self.open.is_set() else 65_536):
            writer.write(data)
            await writer.drain()
            if self.slow and not self.open.is_set():
                self.let_through += len(data)
                await asyncio.wait([asyncio.create_task(self.open.wait())], timeout=1)
        up.cancel()
        writer.close()
        out.close()

    async def _up(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            out.write(data)
            await out.drain()


@asynccontextmanager
async def viewer(
    attempt: Attempt, cookie: str, port: int, through: int | None = None
) -> AsyncIterator[ClientConnection]:
    headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}", "Origin": f"http://127.0.0.1:{port}"}
    async with connect(
        f"ws://127.0.0.1:{port}/ws/runs/{attempt.run_id}/?after=0",
        host="127.0.0.1",
        port=through or port,
        additional_headers=headers,
        compression=None,
        max_size=None,
        max_queue=4,
        ping_interval=None,
        close_timeout=1,
    ) as connection:
        yield connection


async def seqs_until(connection: ClientConnection, last: int) -> list[int]:
    seqs: list[int] = []
    async with asyncio.timeout(60):
        async for text in connection:
            frame = json.loads(text)
            seqs += [row[0] for row in frame.get("rows", [])]
            if frame.get("last", -1) >= last:
                break
    return seqs


async def listen_for(seconds: float, connection: ClientConnection) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await connection.recv()


def store(attempt: Attempt) -> None:
    for first in range(1, ROWS, 500):
        values = [{f"metric/{m}": random.random() for m in range(METRICS)} for _ in range(500)]
        ingest.accept(attempt, [train(first + i, **v) for i, v in enumerate(values)])


@pytest.mark.processes
async def test_a_viewer_that_reads_one_byte_a_second_holds_nobody_and_loses_nothing(
    attempt: Attempt, cookie: str, port: int
) -> None:
    trickle = Trickle(port)
    proxy = await asyncio.start_server(trickle.serve, "127.0.0.1", 0)
    through = proxy.sockets[0].getsockname()[1]
    async with proxy, viewer(attempt, cookie, port, through) as slow, viewer(attempt, cookie, port) as quick:
        await seqs_until(slow, 0)
        await seqs_until(quick, 0)
        trickle.slow = True
        writing = asyncio.create_task(sync_to_async(store)(attempt))
        assert await seqs_until(quick, ROWS) == list(range(1, ROWS + 1))
        await writing
        assert trickle.let_through < 100_000  # of ten million
        trickle.open.set()
        assert await seqs_until(slow, ROWS) == list(range(1, ROWS + 1))


@pytest.mark.processes
async def test_an_idle_socket_still_hears_hints_after_the_usual_time_out_of_redis(
    attempt: Attempt, cookie: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of Redis have time-outs of 5 s by default, and a reader's own look must not hide a dead subscription."""
    monkeypatch.setattr(pump, "FALLBACK_S", 600.0)
    async with viewer(attempt, cookie, port) as connection:
        await seqs_until(connection, 0)
        await listen_for(6, connection)
        await sync_to_async(ingest.accept)(attempt, [train(1)])
        assert await seqs_until(connection, 1) == [1]
