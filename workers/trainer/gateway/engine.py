"""Engines of the gateway: vLLM servers, or the trainer's main thread, which generates batches."""

import asyncio
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from workers.trainer.episodes.generation import TurnRequest, TurnResult, generate
from workers.trainer.keyed_endpoint import HttpRefusal
from workers.trainer.rollouts.vllm_client import WITH_TOKEN_IDS, ServerError, finite_logprobs

GATHER_S = 0.02
"""How long a batch waits for requests that come at the same time."""
MAX_AT_ONCE = 256


@dataclass(frozen=True)
class PolicyAnswer(TurnResult):
    """A completion of the policy."""

    version: int
    """The policy's version: the training step after which its weights were taken."""


class PolicyServers:
    """vLLM servers over HTTP, with token ids in and out. Requests are passed on at once; the servers batch them."""

    def __init__(
        self, models: Sequence[tuple[str, Callable[[], str]]], sampling: dict[str, Any], *, seconds: float
    ) -> None:
        """Create the client. `models`: each server's address, and a function that returns the policy's current name
        there."""
        self._models = models
        self._sampling = sampling
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._http: aiohttp.ClientSession | None = None
        self.version = 0
        self.failure: ServerError | None = None
        """Ends the trainer."""

    async def answer(self, request: TurnRequest, key: str) -> PolicyAnswer:
        """Generate. Requests with the same `key` go to the same server, which has cached their common prefix."""
        address, name = self._models[hash(key) % len(self._models)]
        version, model = self.version, name()
        document = await self._send(address, model, request)
        if document is None and name() != model:  # the adapter was replaced on the way
            version = self.version
            document = await self._send(address, name(), request)
        if document is None:
            raise HttpRefusal(502, f"The vLLM server at {address} no longer has the model {model}.")
        try:
            choice = document["choices"][0]
            ids, logprobs = list(choice["token_ids"]), finite_logprobs(choice["logprobs"]["token_logprobs"])
        except (KeyError, TypeError, IndexError) as error:
            self.failure = ServerError(f"The vLLM server at {address} answered with something that lacks {error}.")
            raise HttpRefusal(502, str(self.failure)) from None
        return PolicyAnswer(ids, logprobs, len(ids) >= request.limit, version)

    async def _send(self, address: str, model: str, request: TurnRequest) -> dict[str, Any] | None:
        if self._http is None:
            # A connection for each request: vLLM closes idle ones, sometimes while the next request is on its way.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._http = aiohttp.ClientSession(timeout=self._timeout, connector=connector)
        tokens = {"prompt": request.ids, "max_tokens": request.limit, "n": 1}
        body = {**self._sampling, "model": model, **tokens, **WITH_TOKEN_IDS}
        try:
            async with self._http.post(f"{address}/v1/completions", json=body) as response:
                if response.status == 404:
                    return None
                if response.status != 200:
                    text = (await response.text())[:300]
                    raise HttpRefusal(
                        502, f"The vLLM server at {address} refused the request ({response.status}): {text}"
                    )
                document: dict[str, Any] = await response.json()
                return document
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failure = ServerError(f"The vLLM server at {address} is gone: {type(error).__name__}. {error}")
            raise HttpRefusal(502, str(self.failure)) from None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


class MainThread:
    """TRL in the trainer's main thread, which generates while it waits for agents."""

    failure = None

    def __init__(self) -> None:
        self.version = 0
        self._requests: queue.SimpleQueue[tuple[TurnRequest, asyncio.Future[PolicyAnswer]] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, request: TurnRequest, key: str) -> PolicyAnswer:
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[PolicyAnswer] = self._loop.create_future()
        self._requests.put((request, future))
        return await future

    async def close(self) -> None: ...

    def wake(self) -> None:
        """Make `batch` return at once."""
        self._requests.put(None)

    def batch(self, seconds: float) -> list[tuple[TurnRequest, asyncio.Future[PolicyAnswer]]]:
        """Take the waiting requests, after at most `seconds` if there are none."""
        batch: list[tuple[TurnRequest, asyncio.Future[PolicyAnswer]]] = []
        while len(batch) < MAX_AT_ONCE:
            try:
                request = self._requests.get(timeout=GATHER_S if batch else seconds)
            except queue.Empty:
                break
            if request is None:
                break
            if not request[1].cancelled():
                batch.append(request)
        return batch

    def generate(self, trainer: Any, batch: Sequence[tuple[TurnRequest, asyncio.Future[PolicyAnswer]]]) -> None:
        """Generate a batch on rank 0, while the other ranks call generation.generate without requests."""
        turns = generate(trainer, [request for request, _ in batch])
        if turns is None or self._loop is None:
            return
        for (_, future), turn in zip(batch, turns, strict=True):
            answer = PolicyAnswer(turn.ids, turn.logprobs, turn.full, self.version)
            self._loop.call_soon_threadsafe(_settle, future, answer)


PolicyEngine = PolicyServers | MainThread


def _settle(future: asyncio.Future[PolicyAnswer], answer: PolicyAnswer) -> None:
    if not future.done():
        future.set_result(answer)
