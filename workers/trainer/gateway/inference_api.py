"""The inference server for Atropos' environments: /generate with token ids, and OpenAI's routes for evaluations.

Environments are started with `--openai.server_type vllm`, which calls /generate; plain vLLM has no such route. Tokens
are sampled with the run's settings whatever a request says, since training divides by the run's temperature.
"""

import asyncio
import time
from collections import deque
from typing import Any

from aiohttp import web

from workers.trainer.episodes.generation import TurnRequest
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.engine import PolicyEngine, PolicyTurn
from workers.trainer.gateway.scored_groups import Stamps
from workers.trainer.gateway.sessions import AgentSession, AgentTask
from workers.trainer.keyed_endpoint import Handler, HttpRefusal, body_of, chat_routes, models_response
from workers.trainer.openai_shapes import are_tokens, count_in, read_agent_request, usage_of

MAX_COMPLETIONS = 256


class InferenceApi:
    """Routes for environments, with a record of the policy version that generated each response."""

    def __init__(
        self, conversing: Conversing, engine: PolicyEngine, *, longest: int, requests: int = 0, interval_s: float = 1.0
    ) -> None:
        """Create the API. `longest`: the maximum number of prompt and completion tokens together. `requests`: the
        maximum number of requests within `interval_s`; 0 for no limit."""
        self._conversing, self._engine, self._longest = conversing, engine, longest
        self._requests, self._interval_s = requests, interval_s
        self._recent: deque[float] = deque()
        self.stamps = Stamps()
        self.latencies: list[float] = []
        self.active = 0
        self.heard_at = time.monotonic()
        """Time of time.monotonic() when a request last arrived or was completed."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/generate", self._with_counting(self._generate)),
            web.get("/v1/models", self._models),
            *chat_routes("", self._with_counting(self._evaluate)),
        ]

    def _with_counting(self, handler: Handler) -> Handler:
        async def respond(request: web.Request, **options: bool) -> web.StreamResponse:
            self.active += 1
            self.heard_at = time.monotonic()
            try:
                return await handler(request, **options)
            finally:
                self.active -= 1
                self.heard_at = time.monotonic()

        return respond

    async def _generate(self, request: web.Request) -> web.Response:
        began = time.perf_counter()
        document = await body_of(request)
        if document.get("prompt_logprobs"):
            raise HttpRefusal(400, "This endpoint doesn't return log-probabilities of prompts.")
        ids = await self._conversing.aside(self._prompt, document.get("prompt"))
        limit = count_in(document, "max_tokens", self._conversing.longest)
        count = min(count_in(document, "n", 1), MAX_COMPLETIONS)
        await self._when_allowed()
        room = min(self._longest, self._conversing.context) - len(ids)
        if room < 1:
            raise HttpRefusal(400, f"The prompt has {len(ids)} tokens; the limit is {self._longest}.")
        request_turn, key = TurnRequest(ids, min(limit, self._conversing.longest, room), room), str(hash(tuple(ids)))
        turns = await asyncio.gather(*(self._engine.complete(request_turn, key) for _ in range(count)))
        for turn in turns:
            self.stamps.stamp(turn.ids, turn.version)
        self.latencies.append(time.perf_counter() - began)
        return web.json_response(
            {
                "text": [await self._conversing.aside(self._conversing.decode, turn.ids) for turn in turns],
                "finish_reasons": ["stop" if self._conversing.has_ended(turn.ids) else "length" for turn in turns],
                "logprobs": [_logprobs(turn) for turn in turns],
                "token_ids": [turn.ids for turn in turns],
                "prompt_token_ids": ids,
            }
        )

    def _prompt(self, prompt: Any) -> list[int]:
        ids: Any = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else prompt
        if not (isinstance(ids, str) and ids) and not are_tokens(ids):
            raise HttpRefusal(400, 'prompt must be {"prompt_token_ids": [...]} or a string.')
        return self._conversing.text_ids(ids)

    async def _when_allowed(self) -> None:
        """Wait until the request limit admits another request; requests are delayed, never refused."""
        while self._requests:
            now = time.monotonic()
            while self._recent and now - self._recent[0] >= self._interval_s:
                self._recent.popleft()
            if len(self._recent) < self._requests:
                self._recent.append(now)
                return
            await asyncio.sleep(self._interval_s - (now - self._recent[0]))

    # --- evaluations: completed, but not trained on ---------------------------------------------------------------

    async def _models(self, _request: web.Request) -> web.Response:
        return models_response([self._conversing.model])

    async def _evaluate(self, request: web.Request, *, chat: bool) -> web.Response:
        document = await body_of(request)
        count = min(count_in(document, "n", 1), MAX_COMPLETIONS)
        query = read_agent_request({**document, "n": 1}, chat=chat)
        await self._when_allowed()
        sessions = [AgentSession(f"n{number}", AgentTask({}, ""), 0.0) for number in range(count)]
        responses = await asyncio.gather(
            *(self._conversing.respond(query, session, self._engine) for session in sessions)
        )
        choices = [{**part["choices"][0], "index": number} for number, part in enumerate(responses)]
        usage = responses[0]["usage"]
        tokens = sum(part["usage"]["completion_tokens"] for part in responses)
        response = {**responses[0], "choices": choices, "usage": usage_of(usage["prompt_tokens"], tokens)}
        return web.json_response(response, headers=query.headers)


def _logprobs(turn: PolicyTurn) -> list[list[dict[int, float]]]:
    """Return log-probabilities in vLLM's format; 0.0 where the engine returns none, as training then uses its own."""
    values = turn.logprobs if turn.logprobs is not None else [0.0] * len(turn.ids)
    return [[{token: value or 0.0}] for token, value in zip(turn.ids, values, strict=True)]
