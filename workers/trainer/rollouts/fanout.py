"""Several vLLM servers used as one: each group is sent to one of them, and all sample from the same version.

Standard library only, like the client of a single server.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workers.contract.run.spec import AttemptSpec, servers_of
from workers.contract.stack import commands
from workers.trainer.rollouts.vllm_client import POLICY_PREFIX, AdapterClient, Completion, adapter_prefix

T = TypeVar("T")
OnArrival = Callable[[int, T], None]


def connect(spec: AttemptSpec) -> "ServerFanout":
    """Create clients for the spec's servers, own or attached, without sending a request."""
    settings = spec.run.hardware.server
    assert settings is not None  # noqa: S101  # otherwise servers_of would find none
    servers = servers_of(spec)
    return ServerFanout(
        [
            AdapterClient(
                server.address,
                commands.served_name(spec, server) if server.own or server.warm else None,
                request_timeout_s=settings.request_timeout_s,
                role=server.role if len(servers) > 1 else "",
                # An external server may have other users' adapters, but ours contain the run's id. A warm server is
                # used only by this attempt, and its other adapters are those of earlier runs.
                adapters=POLICY_PREFIX if server.own else "" if server.warm else f"{spec.run.run_id}-",
            )
            for server in servers
        ],
        # Either all of them are the attempt's own, or none.
        prefix=POLICY_PREFIX if servers[0].own else adapter_prefix(spec.attempt_id),
        unloads=not servers[0].own,
    )


class ServerFanout:
    """A client of all servers. The first failure is raised immediately, because a step is either complete or failed."""

    def __init__(self, clients: Sequence[AdapterClient], *, prefix: str = POLICY_PREFIX, unloads: bool = False) -> None:
        """Create the group. `prefix`: the beginning of adapter names, which end with a version. `unloads`: whether to
        unload the last adapter at the end."""
        self.clients = list(clients)
        self.around_request: Callable[[int], AbstractContextManager[None]] = lambda number: nullcontext()
        """Function that returns the context of each request for completions, called with the server's number."""
        self._prefix = prefix
        self._unloads = unloads

    def check(self) -> None:
        run_concurrently([client.check for client in self.clients])

    def get_server_info(self) -> dict[str, Any]:
        """Return the information that TRL queries, if possible from a server that returns raw log-probabilities."""
        infos = run_concurrently([client.get_server_info for client in self.clients])
        biased = [info for info in infos if info["model_config"]["logprobs_mode"] != "processed_logprobs"]
        return (biased or infos)[0]

    def adapter_name(self, version: int) -> str:
        return f"{self._prefix}{version}"

    def use_adapter(self, name: str, path: Path) -> str | None:
        """Load an adapter on all servers, unload the one that it replaces, and return the latter's name or None."""
        return run_concurrently([partial(client.use_adapter, name, path) for client in self.clients])[0]

    def complete(
        self, prompts: list[list[int]], sampling: dict[str, Any], on_arrival: OnArrival[list[Completion]] | None = None
    ) -> list[Completion]:
        """Request sampling["n"] completions per prompt, and return them in the order of the prompts. With `on_arrival`,
        each prompt is a separate request, and the function gets the prompt's index and completions."""
        calls = [
            partial(self._complete, number, part, sampling)
            for number, share in enumerate(split_evenly(prompts, len(self.clients)))
            for part in ([share] if on_arrival is None else [[prompt] for prompt in share])
            if part
        ]
        return [completion for group in run_concurrently(calls, on_arrival) for completion in group]

    def score(self, sequences: list[list[int]]) -> list[list[list[float | None]]]:
        """Return the log-probabilities of the sequences' tokens by each server."""
        return run_concurrently([partial(client.score, sequences) for client in self.clients])

    def _complete(self, number: int, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Completion]:
        with self.around_request(number):
            return self.clients[number].complete(prompts, sampling)

    def close(self) -> None:
        if self._unloads:
            run_concurrently([client.unload_last for client in self.clients])


def split_evenly(items: Sequence[T], count: int) -> list[list[T]]:
    """Split `items` into `count` contiguous parts of nearly equal size; the first ones are larger."""
    size, remainder = divmod(len(items), count)
    ends = [(number + 1) * size + min(number + 1, remainder) for number in range(count)]
    return [list(items[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def run_concurrently(calls: Sequence[Callable[[], T]], on_arrival: OnArrival[T] | None = None) -> list[T]:
    """Run all calls concurrently, and return their results in order. `on_arrival` is called with the index and result
    of each, in the caller's thread. The first exception is raised without waiting for the other calls, whose threads
    end with the process."""
    if len(calls) == 1 and on_arrival is None:
        return [calls[0]()]
    outcomes: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int, call: Callable[[], T]) -> None:
        try:
            outcomes.put((number, call(), None))
        except BaseException as error:  # passed to the caller's thread, which raises it
            outcomes.put((number, None, error))

    for number, call in enumerate(calls):
        threading.Thread(target=run, args=(number, call), daemon=True).start()
    results: dict[int, Any] = {}
    for _ in calls:
        number, result, error = outcomes.get()
        if error is not None:
            raise error
        results[number] = result
        if on_arrival is not None:
            on_arrival(number, results[number])
    return [results[number] for number in range(len(calls))]
