"""The gateway's HTTP endpoint, on a leased port.

    POST /v1/sessions                a task: {"id", "base_url", "messages" or "prompt", "metadata"}; 204 if none yet
    POST /s/<id>/v1/chat/completions, POST /s/<id>/v1/completions     as in OpenAI's API
    POST /s/<id>/reward              {"reward": 1.0}
    POST /s/<id>/end                 {"reward": 1.0}, or nothing
    GET  /health                     without a key

A step's tasks wait for agents, and agents wait for tasks.
"""

import json
import time
from typing import Any

from aiohttp import web

from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.engine import PolicyEngine
from workers.trainer.gateway.sessions import AgentTask, SessionManager
from workers.trainer.keyed_endpoint import HttpRefusal, KeyedEndpoint, body_of, chat_routes, models_response
from workers.trainer.openai_shapes import as_stream, read_agent_request

DEFAULT_WAIT_S, MAX_WAIT_S = 30.0, 300.0
"""Seconds for which a request for a task waits for one: by default, and at most."""


class AgentEndpoint(KeyedEndpoint):
    """An endpoint that hands out tasks and responds to the requests of their sessions."""

    body_limit = 8 << 20
    no_such_path = "There is no such address. Request a task first: POST /v1/sessions."

    def __init__(
        self, manager: SessionManager, conversing: Conversing, engine: PolicyEngine, *, digest: str, shows_answer: bool
    ) -> None:
        super().__init__(digest=digest)
        self.manager, self.conversing, self.engine = manager, conversing, engine
        self._shows_answer = shows_answer
        self.latencies: list[float] = []
        """Duration in seconds of each request since the last step."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/sessions", self._take),
            *chat_routes("/s/{id}", self._complete),
            web.get("/s/{id}/v1/models", self._models),
            web.post("/s/{id}/reward", self._reward),
            web.post("/s/{id}/end", self._end),
        ]

    async def stop(self) -> None:
        await self.manager.close()
        await self.engine.close()
        await super().stop()

    # --- tasks and their ends -----------------------------------------------------------------------------------------

    async def _take(self, request: web.Request) -> web.Response:
        wait_s = (await body_of(request)).get("wait_s", DEFAULT_WAIT_S)
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= MAX_WAIT_S:
            raise HttpRefusal(400, f"wait_s must be a number of seconds from 0 to {MAX_WAIT_S:g}.")
        session = await self.manager.open_session(wait_s)
        if session is None:
            return web.Response(status=204)
        if request.transport is None or request.transport.is_closing():
            self.manager.requeue(session)  # the agent has closed its connection
        url = f"http://{request.host}/s/{session.id}/v1"
        address = {"id": session.id, "base_url": url, "model": self.conversing.model}
        return web.json_response({**self._task_body(session.task), **address})

    def _task_body(self, task: AgentTask) -> dict[str, Any]:
        hidden_columns = {"prompt", "row"} if self._shows_answer else {"prompt", "row", "answer", "test_cases"}
        metadata = {name: value for name, value in task.row.items() if name not in hidden_columns}
        prompt = {"prompt" if isinstance(task.prompt, str) else "messages": task.prompt}
        return {
            **prompt,
            "row": task.row["row"],
            "evaluation": task.evaluation,
            "metadata": json.loads(json.dumps(metadata, default=str)),
        }

    async def _reward(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        session = self.manager.score(request.match_info["id"], body.get("reward"))
        return web.json_response({"reward": session.reward})

    async def _end(self, request: web.Request) -> web.Response:
        session = self.manager.end(request.match_info["id"], (await body_of(request)).get("reward"))
        branches = len(session.branches.leaves)
        body: dict[str, Any] = {"reward": session.reward, "requests": session.requests, "branches": branches}
        if branches > 1:
            body["note"] = (
                "Requests that didn't continue earlier ones began new branches; only the longest one is trained on."
            )
        return web.json_response(body)

    # --- requests to the model ------------------------------------------------------------------------------------

    async def _models(self, request: web.Request) -> web.Response:
        self.manager.find(request.match_info["id"])
        return models_response([self.conversing.model])

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        began = time.perf_counter()
        session = self.manager.find(request.match_info["id"])
        query = read_agent_request(await body_of(request), chat=chat)
        response = await self.conversing.respond(query, session, self.engine)
        self.manager.find(session.id)  # raises if the session has ended since
        session.requests += 1
        self.latencies.append(time.perf_counter() - began)
        if query.stream:
            return web.Response(body=as_stream(response), content_type="text/event-stream", headers=query.headers)
        return web.json_response(response, headers=query.headers)
