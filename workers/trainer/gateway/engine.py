"""Where the gateway's answers come from: vLLM servers, asked at once, or the trainer's own main thread, in batches."""

from __future__ import annotations

import asyncio
import math
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from workers.trainer.episodes.generation import Wanted, generate
from workers.trainer.keyed_endpoint import Refused
from workers.trainer.rollouts.vllm_client import ServerError

GATHER_S = 0.02
"""How long a batch waits for requests that come at the same time."""
MOST_AT_ONCE = 256


@dataclass(frozen=True)
class PolicyAnswer:
    ids: list[int]
    logprobs: list[float | None] | None
    full: bool
    """It has all tokens that it was allowed."""
    version: int
    """Of the policy: the training step after which its weights were taken."""


class PolicyEngine(Protocol):
    version: int

    async def answer(self, wanted: Wanted, key: str) -> PolicyAnswer:
        """`key`: requests with the same one go to the same server, which has what they share."""

    async def close(self) -> None: ...


class PolicyServers:
    """vLLM servers over HTTP, token ids in and out. Each request is passed on at once; they batch themselves."""

    def __init__(
        self, models: Sequence[tuple[str, Callable[[], str]]], sampling: dict[str, Any], *, seconds: float
    ) -> None:
        """`models`: the address of each, and under which name it has the policy now."""
        self._models = models
        self._sampling = sampling
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._http: aiohttp.ClientSession | None = None
        self.version = 0
        self.failure: ServerError | None = None
        """What the trainer ends with."""

    async def answer(self, wanted: Wanted, key: str) -> PolicyAnswer:
        address, name = self._models[hash(key) % len(self._models)]
        version, model = self.version, name()
        document = await self._ask(address, model, wanted)
        if document is None and name() != model:  # the adapter was replaced on the way
            version = self.version
            document = await self._ask(address, name(), wanted)
        if document is None:
            raise Refused(502, f"The vLLM server at {address} no longer has the model {model}.")
        try:
            choice = document["choices"][0]
            ids, values = list(choice["token_ids"]), choice["logprobs"]["token_logprobs"]
        except (KeyError, TypeError, IndexError) as error:
            self.failure = ServerError(f"The vLLM server at {address} answered with something that lacks {error}.")
            raise Refused(502, str(self.failure)) from None
        logprobs = [None if value is None or math.isnan(value) else float(value) for value in values]
        return PolicyAnswer(ids, logprobs, len(ids) >= wanted.most, version)

    async def _ask(self, address: str, model: str, wanted: Wanted) -> dict[str, Any] | None:
        if self._http is None:
            # A connection each: vLLM closes those that it kept, some of them as the next request is on its way.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._http = aiohttp.ClientSession(timeout=self._timeout, connector=connector)
        flags = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 0, "n": 1}
        request = {**self._sampling, "model": model, "prompt": wanted.ids, "max_tokens": wanted.most, **flags}
        try:
            async with self._http.post(f"{address}/v1/completions", json=request) as response:
                if response.status == 404:
                    return None
                if response.status != 200:
                    said = (await response.text())[:300]
                    raise Refused(502, f"The vLLM server at {address} refused the request ({response.status}): {said}")
                document: dict[str, Any] = await response.json()
                return document
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failure = ServerError(f"The vLLM server at {address} is gone: {type(error).__name__}. {error}")
            raise Refused(502, str(self.failure)) from None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


class MainThread:
    """TRL generates in the trainer's main thread, which comes by while it waits for agents."""

    failure = None

    def __init__(self) -> None:
        self.version = 0
        self._asked: queue.SimpleQueue[tuple[Wanted, asyncio.Future[PolicyAnswer]] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, wanted: Wanted, key: str) -> PolicyAnswer:
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[PolicyAnswer] = self._loop.create_future()
        self._asked.put((wanted, future))
        return await future

    async def close(self) -> None: ...

    def wake(self) -> None:
        """Let `batch` come back at once."""
        self._asked.put(None)

    def batch(self, seconds: float) -> list[tuple[Wanted, asyncio.Future[PolicyAnswer]]]:
        """The requests that wait; none if there are none within `seconds`."""
        found: list[tuple[Wanted, asyncio.Future[PolicyAnswer]]] = []
        while len(found) < MOST_AT_ONCE:
            try:
                one = self._asked.get(timeout=GATHER_S if found else seconds)
            except queue.Empty:
                break
            if one is None:
                break
            if not one[1].cancelled():
                found.append(one)
        return found

    def generate(self, trainer: Any, batch: Sequence[tuple[Wanted, asyncio.Future[PolicyAnswer]]]) -> None:
        """On rank 0, while the other ranks are in generation.generate with nothing of their own."""
        written = generate(trainer, [wanted for wanted, _ in batch])
        if written is None or self._loop is None:
            return
        for (_, future), one in zip(batch, written, strict=True):
            answer = PolicyAnswer(one.ids, one.logprobs, one.full, self.version)
            self._loop.call_soon_threadsafe(_settle, future, answer)


def _settle(future: asyncio.Future[PolicyAnswer], answer: PolicyAnswer) -> None:
    if not future.done():
        future.set_result(answer)
