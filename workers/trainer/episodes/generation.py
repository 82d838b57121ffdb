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
    """A request for the next turn of one episode."""

    ids: list[int]
    """All token ids so far."""
    limit: int
    """Limit of the turn's tokens, at least 1."""
    room: int
    """Tokens until the model's context is full, at least `limit`."""


@dataclass(frozen=True)
class TurnResult:
    """The model's turn."""

    ids: list[int]
    logprobs: list[float | None] | None
    """None: the backend returns none."""
    full: bool
    """True if the limit was reached."""


def generate(trainer: Any, requests: Sequence[TurnRequest]) -> list[TurnResult] | None:
    """Generate a turn for each request; None if no rank has any. All ranks must call this equally often."""
    rank, ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    marked = [(rank, request) for request in requests]
    gathered: list[tuple[int, TurnRequest]] = gather_object(marked) if ranks > 1 else marked
    if not gathered:
        return None
    results: dict[int, TurnResult] = {}
    for indexes, limit in calls([request for _, request in gathered]):
        size = -(-len(indexes) // ranks)
        padding = min(indexes, key=lambda index: len(gathered[index][1].ids))
        own = [*indexes, *[padding] * (size * ranks - len(indexes))][rank * size :][:size]
        with _limited(trainer, limit):
            ids, logprobs = trainer._generate_single_turn([gathered[index][1].ids for index in own], None, {}, 1)
        answers = list(zip(own, ids, logprobs if logprobs is not None else [None] * len(ids), strict=True))
        for index, tokens, values in gather_object(answers) if ranks > 1 else answers:
            allowed = min(limit, gathered[index][1].limit)
            cut = values[:allowed] if values is not None else None
            results[index] = TurnResult(list(tokens)[:allowed], cut, len(tokens) >= allowed)
    return [results[index] for index, (owner, _) in enumerate(gathered) if owner == rank]


def calls(requests: Sequence[TurnRequest]) -> list[tuple[list[int], int]]:
    """Plan the calls to the backend, each with the indexes of its requests and its token limit.

    One call, and a second for requests whose context would overflow with the others' limit, which a server refuses.
    """
    limit = max(request.limit for request in requests)
    roomy = [index for index, request in enumerate(requests) if request.room >= limit]
    tight = [index for index, request in enumerate(requests) if request.room < limit]
    planned = [(roomy, limit)]
    if tight:
        planned.append((tight, min(requests[index].room for index in tight)))
    return planned


@contextlib.contextmanager
def _limited(trainer: Any, limit: int) -> Iterator[None]:
    """Set the length limit, which all of TRL's backends take from an attribute."""
    holder, name = (
        (trainer.vllm_generation, "max_completion_length")
        if trainer.use_vllm
        else (trainer.generation_config, "max_new_tokens")
    )
    before = getattr(holder, name)
    setattr(holder, name, limit)
    try:
        yield
    finally:
        setattr(holder, name, before)
