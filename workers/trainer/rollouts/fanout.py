"""Several vLLM servers used as one: each group goes to one of them, and all sample from the same version.

Standard library only, like the client of a single server.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workers.contract.run.spec import AttemptSpec, servers_of
from workers.contract.stack import commands
from workers.trainer.rollouts.vllm_client import POLICY, AdapterClient, Completion, adapter_prefix

T = TypeVar("T")
Done = Callable[[int, T], None]


def connect(spec: AttemptSpec) -> ServerFanout:
    """Create clients of the spec's servers, own or attached, without a request."""
    server = spec.run.hardware.server
    assert server is not None  # noqa: S101  # otherwise servers_of would find none
    places = servers_of(spec)
    return ServerFanout(
        [
            AdapterClient(
                place.address,
                commands.served_name(spec, place) if place.own or place.warm else None,
                request_timeout_s=server.request_timeout_s,
                role=place.role if len(places) > 1 else "",
                # An external server may have other users' adapters: ours contain the run's id. A warm one is ours
                # alone for as long as the attempt lasts, and what is there is of earlier runs.
                adapters=POLICY if place.own else "" if place.warm else f"{spec.run.run_id}-",
            )
            for place in places
        ],
        # Either all of them are the attempt's own, or none.
        prefix=POLICY if places[0].own else adapter_prefix(spec.attempt_id),
        leaves=not places[0].own,
    )


class ServerFanout:
    """Sends requests to all servers. The first failure is raised at once: a step is complete or failed."""

    def __init__(self, clients: Sequence[AdapterClient], *, prefix: str = POLICY, leaves: bool = False) -> None:
        """`prefix`: adapter names are the prefix and a version. `leaves`: unload the last adapter at the end."""
        self.clients = list(clients)
        self.around_request: Callable[[int], AbstractContextManager[None]] = lambda number: nullcontext()
        """Entered with the server's number around each request for completions."""
        self._prefix = prefix
        self._leaves = leaves

    def check(self) -> None:
        together([client.check for client in self.clients])

    def get_server_info(self) -> dict[str, Any]:
        """Answer TRL's query about log-probabilities; a server that returns raw ones counts for all."""
        infos = together([client.get_server_info for client in self.clients])
        biased = [info for info in infos if info["model_config"]["logprobs_mode"] != "processed_logprobs"]
        return (biased or infos)[0]

    def adapter_name(self, version: int) -> str:
        return f"{self._prefix}{version}"

    def use_adapter(self, name: str, path: Path) -> str | None:
        """Load an adapter on all servers. Return the one that it replaces, which is unloaded everywhere."""
        replaced = together([partial(client.use_adapter, name, path) for client in self.clients])
        return replaced[0]

    def complete(
        self, prompts: list[list[int]], sampling: dict[str, Any], done: Done[list[Completion]] | None = None
    ) -> list[Completion]:
        """Return sampling["n"] completions per prompt, in the prompts' order.

        With `done`, each prompt is a separate request, and `done` gets its index and completions on arrival.
        """
        calls = [
            partial(self._complete, number, part, sampling)
            for number, share in enumerate(shares(prompts, len(self.clients)))
            for part in ([share] if done is None else [[prompt] for prompt in share])
            if part
        ]
        return [completion for answer in together(calls, done) for completion in answer]

    def _complete(self, number: int, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Completion]:
        with self.around_request(number):
            return self.clients[number].complete(prompts, sampling)

    def close(self) -> None:
        if self._leaves:
            together([client.leave for client in self.clients])


def shares(items: Sequence[T], count: int) -> list[list[T]]:
    """Split `items` into `count` contiguous parts of nearly equal size; the first ones are larger."""
    size, more = divmod(len(items), count)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(count)]
    return [list(items[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def together(calls: Sequence[Callable[[], T]], done: Done[T] | None = None) -> list[T]:
    """Run all calls concurrently, and return their results in order.

    `done` gets the index and result of each on arrival, in the caller's thread. The first exception is raised without
    waiting for the other calls, whose threads end with the process.
    """
    if len(calls) == 1 and done is None:
        return [calls[0]()]
    finished: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int, call: Callable[[], T]) -> None:
        try:
            finished.put((number, call(), None))
        except BaseException as error:  # passed to the caller's thread, which raises it
            finished.put((number, None, error))

    for number, call in enumerate(calls):
        threading.Thread(target=run, args=(number, call), daemon=True).start()
    results: dict[int, Any] = {}
    for _ in calls:
        number, result, error = finished.get()
        if error is not None:
            raise error
        results[number] = result
        if done is not None:
            done(number, results[number])
    return [results[number] for number in range(len(calls))]
