"""Several vLLM servers as one: each prompt group goes to one of them, all of them sample from the same version.

Standard library only, as the client of a single server is.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from workers.contract import AttemptSpec, commands, servers_of
from workers.trainer.vllmclient import POLICY, AdapterClient, Completion

T = TypeVar("T")


def connect(spec: AttemptSpec) -> ServerFanout:
    """The servers that the spec names, own or attached; nothing is asked of them yet."""
    server = spec.run.hardware.server
    assert server is not None  # noqa: S101  servers_of would find none
    places = servers_of(spec)
    return ServerFanout(
        [
            AdapterClient(
                place.address,
                commands.served_name(spec, place) if place.own else None,
                request_timeout_s=server.request_timeout_s,
                role=place.role if len(places) > 1 else "",
                # Somebody else's server may have other people's adapters: ours are known by the run's id.
                adapters=POLICY if place.own else f"{spec.run.run_id}-",
            )
            for place in places
        ],
        # All of them are the attempt's own, or none is.
        prefix=POLICY if places[0].own else f"{spec.attempt_id}-v",
        leaves=not places[0].own,
    )


class ServerFanout:
    """Any failure of any server is raised at once, whatever the others are still doing: a step is whole or not."""

    def __init__(self, clients: Sequence[AdapterClient], *, prefix: str = POLICY, leaves: bool = False) -> None:
        """`prefix` and a number make an adapter's name. `leaves`: take the last adapter away at the end."""
        self._clients = list(clients)
        self._prefix = prefix
        self._leaves = leaves

    def check(self) -> None:
        together([client.check for client in self._clients])

    def get_server_info(self) -> dict[str, Any]:
        """What TRL asks about after building its backend: the first server that biases its answer speaks for all."""
        told = together([client.get_server_info for client in self._clients])
        biased = [info for info in told if info["model_config"]["logprobs_mode"] != "processed_logprobs"]
        return (biased or told)[0]

    def adapter_name(self, version: int) -> str:
        return f"{self._prefix}{version}"

    def use_adapter(self, name: str, path: Path) -> str | None:
        """All have loaded it when this returns. Returns the one it replaces, which none has any more."""
        replaced = together([_bound(client.use_adapter, name, path) for client in self._clients])
        return replaced[0]

    def complete(self, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Completion]:
        """sampling["n"] completions a prompt, in the prompts' order, whoever has made them."""
        asked = [
            _bound(client.complete, share, sampling)
            for client, share in zip(self._clients, shares(prompts, len(self._clients)), strict=True)
            if share
        ]
        return [completion for answer in together(asked) for completion in answer]

    def close(self) -> None:
        if self._leaves:
            together([client.leave for client in self._clients])


def shares(items: Sequence[T], count: int) -> list[list[T]]:
    """`items` cut into `count` runs of neighbours, as even as can be; the first ones get what doesn't divide."""
    size, more = divmod(len(items), count)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(count)]
    return [list(items[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """All at once, results in order. The first failure is raised without waiting for the rest, whose threads end with
    the process."""
    if len(calls) == 1:
        return [calls[0]()]
    done: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int, call: Callable[[], T]) -> None:
        try:
            done.put((number, call(), None))
        except BaseException as error:  # carried to the caller's thread, which raises it
            done.put((number, None, error))

    for number, call in enumerate(calls):
        threading.Thread(target=run, args=(number, call), daemon=True).start()
    results: dict[int, Any] = {}
    for _ in calls:
        number, result, error = done.get()
        if error is not None:
            raise error
        results[number] = result
    return [results[number] for number in range(len(calls))]


def _bound(function: Callable[..., T], *arguments: Any) -> Callable[[], T]:
    return lambda: function(*arguments)
