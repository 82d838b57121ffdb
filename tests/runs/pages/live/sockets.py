"""A websocket to the ASGI application without a network (Channels' own test client asks for daphne)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from asgiref.testing import ApplicationCommunicator
from django.conf import settings

from controlplane.asgi import application
from tests.waiting import LIMIT_S

Json = dict[str, Any]


class Socket:
    def __init__(self, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        bare, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": unquote(bare),
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        self._talk = ApplicationCommunicator(application, scope)
        self.accepted = False

    async def connect(self) -> None:
        await self._talk.send_input({"type": "websocket.connect"})
        self.accepted = (await self._talk.receive_output(LIMIT_S))["type"] == "websocket.accept"

    async def disconnect(self) -> None:
        await self._talk.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._talk.wait(LIMIT_S)

    async def say(self, text: str) -> None:
        await self._talk.send_input({"type": "websocket.receive", "text": text})

    async def receive(self) -> Json:
        """The next message for the browser."""
        message: Json = json.loads((await self._talk.receive_output(LIMIT_S))["text"])
        return message

    async def silent(self, seconds: float) -> bool:
        result: bool = await self._talk.receive_nothing(seconds)
        return result

    async def close_code(self) -> int:
        """What it is closed with; messages before that are skipped."""
        async with asyncio.timeout(LIMIT_S):
            while (message := await self._talk.receive_output(LIMIT_S))["type"] != "websocket.close":
                pass
        code: int = message["code"]
        return code

    async def until(self, enough: Callable[[list[Json]], bool]) -> list[Json]:
        got: list[Json] = []
        async with asyncio.timeout(LIMIT_S):
            while not enough(got):
                got.append(await self.receive())
        return got

    async def seqs_until(self, last: int) -> list[int]:
        """The seqs of all rows up to the frame that reaches `last`."""
        got = await self.until(lambda got: got[-1:] != [] and got[-1].get("last", -1) >= last)
        return [row[0] for frame in got for row in frame.get("rows", [])]


@asynccontextmanager
async def opened(path: str, cookie: str = "", origin: str = "http://localhost:8000") -> AsyncIterator[Socket]:
    headers = [(b"host", b"localhost:8000"), (b"origin", origin.encode())]
    if cookie:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()))
    socket = Socket(path, headers)
    await socket.connect()
    try:
        yield socket
    finally:
        if socket.accepted:
            await socket.disconnect()
