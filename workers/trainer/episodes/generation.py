"""One generation for all live episodes of all ranks.

All ranks call the backend equally often and with equal shares, whichever ranks have live episodes: vLLM's server mode
and tensor parallelism slice what they gather by the size of a rank's own share, and a sharded model's ranks generate
together. So the prompts of all ranks are redistributed for each turn, which also balances the work.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from accelerate.utils import gather_object


@dataclass(frozen=True)
class TurnRequest:
    ids: list[int]
    limit: int
    room: int
    """Number of tokens until the model's context is full, at least `limit`."""


@dataclass(frozen=True)
class TurnResult:
    ids: list[int]
    logprobs: list[float | None] | None
    """Log-probabilities of the tokens; None if the backend returns none."""
    full: bool
    """True if the limit was reached."""


def generate(trainer: Any, requests: Sequence[TurnRequest]) -> list[TurnResult] | None:
    """Generate a turn for each request; return None if no rank has a request. All ranks must call this equally
    often."""
    rank, ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    own_requests = [(rank, request) for request in requests]
    all_requests: list[tuple[int, TurnRequest]] = gather_object(own_requests) if ranks > 1 else own_requests
    if not all_requests:
        return None
    results: dict[int, TurnResult] = {}
    for indexes, limit in calls([request for _, request in all_requests]):
        size = -(-len(indexes) // ranks)
        padding = min(indexes, key=lambda index: len(all_requests[index][1].ids))
        own_indexes = [*indexes, *[padding] * (size * ranks - len(indexes))][rank * size :][:size]
        with _length_limit(trainer, limit):
            ids, logprobs = trainer._generate_single_turn(
                [all_requests[index][1].ids for index in own_indexes], None, {}, 1
            )
        own_results = list(zip(own_indexes, ids, logprobs if logprobs is not None else [None] * len(ids), strict=True))
        for index, tokens, values in gather_object(own_results) if ranks > 1 else own_results:
            allowed = min(limit, all_requests[index][1].limit)
            logprobs_of_turn = values[:allowed] if values is not None else None
            results[index] = TurnResult(list(tokens)[:allowed], logprobs_of_turn, len(tokens) >= allowed)
    return [results[index] for index, (owner, _) in enumerate(all_requests) if owner == rank]


def calls(requests: Sequence[TurnRequest]) -> list[tuple[list[int], int]]:
    """Plan the calls to the backend, and return the request indexes and the token limit of each. There is one call, and
    a second one for requests whose context would overflow with the limit of the others, which a server would refuse."""
    limit = max(request.limit for request in requests)
    roomy_indexes = [index for index, request in enumerate(requests) if request.room >= limit]
    nearly_full_indexes = [index for index, request in enumerate(requests) if request.room < limit]
    plan = [(roomy_indexes, limit)]
    if nearly_full_indexes:
        plan.append((nearly_full_indexes, min(requests[index].room for index in nearly_full_indexes)))
    return plan


@contextlib.contextmanager
def _length_limit(trainer: Any, limit: int) -> Iterator[None]:
    """Set the length limit, which all of TRL's backends read from an attribute, while the context is open."""
    holder, name = (
        (trainer.vllm_generation, "max_completion_length")
        if trainer.use_vllm
        else (trainer.generation_config, "max_new_tokens")
    )
    previous = getattr(holder, name)
    setattr(holder, name, limit)
    try:
        yield
    finally:
        setattr(holder, name, previous)
