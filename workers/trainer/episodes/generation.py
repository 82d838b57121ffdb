"""One generation for all live episodes of all ranks.

All ranks call the backend equally often and with shares of equal size, whoever has live episodes: vLLM's server mode
and tensor parallelism slice what they gather by the size of a rank's own share, and a sharded model's ranks generate
together. So the prompts of all ranks are dealt out anew for each turn, which also shares the work evenly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from accelerate.utils import gather_object


@dataclass(frozen=True)
class Wanted:
    """The next turn of one episode."""

    ids: list[int]
    """All tokens so far."""
    most: int
    """Tokens that the turn may have; at least 1."""
    room: int
    """Tokens until the model's context is full; not less than `most`."""


@dataclass(frozen=True)
class Written:
    """What the model wrote in one turn."""

    ids: list[int]
    logprobs: list[float | None] | None
    """None: the backend tells none."""
    full: bool
    """It has all the tokens that it may have."""


def generate(trainer: Any, wanted: Sequence[Wanted]) -> list[Written] | None:
    """What the model writes to each; None if no rank wants anything. To be called by all ranks equally often."""
    rank, ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    marked = [(rank, one) for one in wanted]
    everyones: list[tuple[int, Wanted]] = gather_object(marked) if ranks > 1 else marked
    if not everyones:
        return None
    written: dict[int, Written] = {}
    for places, most in calls([one for _, one in everyones]):
        size = -(-len(places) // ranks)
        padding = min(places, key=lambda place: len(everyones[place][1].ids))
        own = [*places, *[padding] * (size * ranks - len(places))][rank * size :][:size]
        with _limited(trainer, most):
            ids, logprobs = trainer._generate_single_turn([everyones[place][1].ids for place in own], None, {}, 1)
        answers = list(zip(own, ids, logprobs if logprobs is not None else [None] * len(ids), strict=True))
        for place, of_place, its_logprobs in gather_object(answers) if ranks > 1 else answers:
            allowed = min(most, everyones[place][1].most)
            cut = its_logprobs[:allowed] if its_logprobs is not None else None
            written[place] = Written(list(of_place)[:allowed], cut, len(of_place) >= allowed)
    return [written[place] for place, (of, _) in enumerate(everyones) if of == rank]


def calls(wanted: Sequence[Wanted]) -> list[tuple[list[int], int]]:
    """(indexes, most tokens) of each call to the backend: one, and a second for those whose context would be more than
    full with what the others may write, which a server refuses."""
    most = max(one.most for one in wanted)
    roomy = [place for place, one in enumerate(wanted) if one.room >= most]
    tight = [place for place, one in enumerate(wanted) if one.room < most]
    planned = [(roomy, most)]
    if tight:
        planned.append((tight, min(wanted[place].room for place in tight)))
    return planned


@contextlib.contextmanager
def _limited(trainer: Any, most: int) -> Iterator[None]:
    """All of TRL's backends take the length from an attribute."""
    holder, name = (
        (trainer.vllm_generation, "max_completion_length")
        if trainer.use_vllm
        else (trainer.generation_config, "max_new_tokens")
    )
    before = getattr(holder, name)
    setattr(holder, name, most)
    try:
        yield
    finally:
        setattr(holder, name, before)
