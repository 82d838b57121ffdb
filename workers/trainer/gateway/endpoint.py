"""The gateway's HTTP endpoint: a thread with an event loop of its own, keyed, on a leased port.

    POST /v1/sessions                a task: {"id", "base_url", "messages" or "prompt", "metadata"}; 204: none yet
    POST /s/<id>/v1/chat/completions, POST /s/<id>/v1/completions     as OpenAI's
    POST /s/<id>/reward              {"reward": 1.0}
    POST /s/<id>/end                 {"reward": 1.0}, or nothing
    GET  /health                     without a key

A step's tasks wait until an agent takes them, and agents wait until there is a task.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from aiohttp import web

from workers.trainer.configuration.spec import TrainerError
from workers.trainer.gateway import shapes
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.engine import Engine
from workers.trainer.gateway.sessions import Desk, Refused, Session, Task

T = TypeVar("T")
BODY_LIMIT = 8 << 20
TAKE_S, LONGEST_TAKE_S = 30.0, 300.0
"""How long a request for a task waits for one."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """Listens from `open` to `close`."""

    def __init__(self, desk: Desk, conversing: Conversing, engine: Engine, *, digest: str, shows_answer: bool) -> None:
        """`digest`: the SHA-256 of the key, in hex."""
        self.desk, self.conversing, self.engine = desk, conversing, engine
        self._digest, self._shows_answer = digest.encode(), shows_answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._runner: web.AppRunner | None = None
        self.latencies: list[float] = []
        """Of the requests since the last step, in seconds."""

    def open(self, host: str, port: int, *more: web.RouteDef) -> str:
        """`more`: routes of a protocol on top. Returns the address."""
        self._thread.start()
        try:
            return self.run(self._listen(host, port, more))
        except OSError as error:
            raise TrainerError(f"The gateway can't listen on {host}, port {port}: {error.strerror}.") from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the endpoint's loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    async def _listen(self, host: str, port: int, more: tuple[web.RouteDef, ...]) -> str:
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_LIMIT)
        app.add_routes([web.get("/health", self._health), *(more or self._routes())])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        return f"http://{host}:{self._runner.addresses[0][1]}"

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/sessions", self._take),
            web.post("/s/{id}/v1/chat/completions", self._chat),
            web.post("/s/{id}/v1/completions", self._text),
            web.get("/s/{id}/v1/models", self._models),
            web.post("/s/{id}/reward", self._reward),
            web.post("/s/{id}/end", self._end),
        ]

    async def _stop(self) -> None:
        await self.desk.close()
        await self.engine.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # --- every request ------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path != "/health" and not self._allows(request.headers.get("Authorization", "")):
                raise Refused(401, "The key is missing or wrong. Send `Authorization: Bearer KEY`.")
            return await handler(request)
        except Refused as refusal:
            return _error(refusal.status, str(refusal), refusal.code)
        except web.HTTPNotFound:
            return _error(404, "There is no such address. Take a task first: POST /v1/sessions.")
        except web.HTTPException as error:
            return _error(error.status, error.reason)

    def _allows(self, authorization: str) -> bool:
        kind, _, key = authorization.partition(" ")
        given = hashlib.sha256(key.strip().encode(errors="replace")).hexdigest().encode()
        return hmac.compare_digest(given, self._digest) and kind.lower() == "bearer"

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    # --- tasks and their ends -----------------------------------------------------------------------------------------

    async def _take(self, request: web.Request) -> web.Response:
        wait_s = (await body_of(request)).get("wait_s", TAKE_S)
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= LONGEST_TAKE_S:
            raise Refused(400, f"wait_s must be a number of seconds from 0 to {LONGEST_TAKE_S:g}.")
        session = await self.desk.take(wait_s)
        if session is None:
            return web.Response(status=204)
        if request.transport is None or request.transport.is_closing():
            self.desk.give_back(session)  # the agent has hung up meanwhile
        return web.json_response({**self._told(session.task), **self._address(request, session)})

    def _told(self, task: Task) -> dict[str, Any]:
        hidden = {"prompt", "row"} if self._shows_answer else {"prompt", "row", "answer", "test_cases"}
        metadata = {name: value for name, value in task.row.items() if name not in hidden}
        prompt = {"prompt" if isinstance(task.prompt, str) else "messages": task.prompt}
        return {
            **prompt,
            "row": task.row["row"],
            "evaluation": task.evaluation,
            "metadata": json.loads(json.dumps(metadata, default=str)),
        }

    def _address(self, request: web.Request, session: Session) -> dict[str, Any]:
        url = f"http://{request.host}/s/{session.id}/v1"
        return {"id": session.id, "base_url": url, "model": self.conversing.model}

    async def _reward(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        session = self.desk.score(request.match_info["id"], body.get("reward"))
        return web.json_response({"reward": session.reward})

    async def _end(self, request: web.Request) -> web.Response:
        session = self.desk.end(request.match_info["id"], (await body_of(request)).get("reward"))
        made = session.branches
        told: dict[str, Any] = {"reward": session.reward, "requests": session.requests, "branches": len(made.leaves)}
        if len(made.leaves) > 1:
            told["note"] = "Requests that didn't go on from earlier ones began branches; the longest one is trained on."
        return web.json_response(told)

    # --- requests to the model ------------------------------------------------------------------------------------

    async def _models(self, request: web.Request) -> web.Response:
        self.desk.find(request.match_info["id"])
        return web.json_response({"object": "list", "data": [{"id": self.conversing.model, "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, chat=True)

    async def _text(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, chat=False)

    async def _ask(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        began = time.perf_counter()
        session = self.desk.find(request.match_info["id"])
        asked = shapes.read(await body_of(request), chat=chat)
        method = self.conversing.chat_answer if chat else self.conversing.text_answer
        answer = await method(asked, session, self.engine)
        self.desk.find(session.id)  # it may have ended meanwhile
        session.requests += 1
        self.latencies.append(time.perf_counter() - began)
        headers = {shapes.IGNORED_HEADER: asked.ignored} if asked.ignored else {}
        if not asked.stream:
            return web.json_response(answer, headers=headers)
        return web.Response(body=shapes.as_stream(answer), content_type="text/event-stream", headers=headers)


async def body_of(request: web.Request) -> dict[str, Any]:
    content = await request.read()
    try:
        document = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        raise Refused(400, "The body is not valid JSON.") from None
    if not isinstance(document, dict):
        raise Refused(400, "Send a JSON object.")
    return document


def _error(status: int, text: str, code: str | None = None) -> web.Response:
    kind = "authentication_error" if status == 401 else "server_error" if status >= 500 else "invalid_request_error"
    return web.json_response({"error": {"message": text, "type": kind, "code": code}}, status=status)
