"""The OpenAI-compatible HTTP endpoint of a served model.

    GET  /v1/models
    POST /v1/chat/completions, POST /v1/completions
    GET  /health                     without a key

Requests beyond the engine's concurrency wait, at most MAX_WAITING of them. Generation ends when its client disconnects.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from workers.trainer.jobs.generation import GenerationError, GenerationResult, ModelEngine, Usage
from workers.trainer.keyed_endpoint import (
    HttpRefusal,
    KeyedEndpoint,
    body_of,
    chat_routes,
    error_body,
    models_response,
)
from workers.trainer.openai_shapes import END_OF_STREAM, ModelRequest, event, read_model_request

MAX_WAITING = 16
MAX_SEND_S = 30.0
"""Seconds within which a client must receive a piece of its response."""


class ModelEndpoint(KeyedEndpoint):
    """An endpoint that forwards requests to an engine, whose blocking calls run in threads."""

    body_limit = 1 << 20
    max_connections = 64
    backlog = 32
    idle_s = 30.0
    no_such_path = "There is no such path. Use /v1/models, /v1/chat/completions or /v1/completions."

    def __init__(self, engine: ModelEngine, usage: Usage, *, digest: str) -> None:
        super().__init__(digest=digest)
        self._engine, self._usage = engine, usage
        self._created = int(time.time())
        limit = engine.at_once + MAX_WAITING
        self._slots = threading.BoundedSemaphore(limit)
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="answer")

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/models", self._models), *chat_routes("", self._complete)]

    async def stop(self) -> None:
        await super().stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _models(self, _request: web.Request) -> web.Response:
        return models_response(self._engine.models, created=self._created, owned_by="grpo")

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        query = read_model_request(await body_of(request), self._engine.models, chat=chat)
        if not self._slots.acquire(blocking=False):
            raise HttpRefusal(429, f"{MAX_WAITING} requests are already waiting. Try again later.")
        try:
            with self._usage.answering():
                if query.stream:
                    return await self._stream(request, query)
                work = self._loop.run_in_executor(self._threads, self._generate, query, _disconnection_check(request))
                return web.json_response(await work)
        except GenerationError as error:
            raise HttpRefusal(400, str(error)) from None
        finally:
            self._slots.release()

    def _generate(self, query: ModelRequest, disconnected: Callable[[], bool]) -> dict[str, Any]:
        with self._engine.turn(disconnected):
            if query.top is not None:
                document = query.scores(self._engine.score(query.prompts, query.top, disconnected))
            else:
                document = query.response(self._engine.answers(query.prompts, disconnected))
        self._usage.count_request()
        return document

    async def _stream(self, request: web.Request, query: ModelRequest) -> web.StreamResponse:
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def send(text: str | None) -> None:
            self._loop.call_soon_threadsafe(pieces.put_nowait, text)

        def generate() -> GenerationResult:
            try:
                with self._engine.turn(disconnected):
                    return self._engine.answer(query.prompts[0], send, disconnected)
            finally:
                send(None)

        disconnected = _disconnection_check(request)
        work = self._loop.run_in_executor(self._threads, generate)
        stream = _EventStream(request)
        while (text := await pieces.get()) is not None:
            if text:
                await stream.send(event(query.piece(text, is_first=not stream.begun)))
        try:
            result = await work
        except GenerationError as error:
            if not stream.begun:
                raise
            await stream.send(event(error_body(500, str(error))))
            return stream.response
        self._usage.count_request()
        if not stream.begun:
            await stream.send(event(query.piece("", is_first=True)))
        for part in query.last_parts(result):
            await stream.send(event(part))
        await stream.send(END_OF_STREAM)
        return stream.response


class _EventStream:
    """A response of server-sent events, whose status is sent with the first one."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
        self.response = web.StreamResponse(headers=headers)
        self.begun = False

    async def send(self, data: bytes) -> None:
        """Send an event, and close the connection if the client doesn't receive it in time."""
        try:
            async with asyncio.timeout(MAX_SEND_S):
                if not self.begun:
                    self.begun = True
                    await self.response.prepare(self._request)
                await self.response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("The client didn't receive its response in time.") from None


def _disconnection_check(request: web.Request) -> Callable[[], bool]:
    """Return a function that returns whether the client has closed its connection."""
    return lambda: request.transport is None or request.transport.is_closing()
