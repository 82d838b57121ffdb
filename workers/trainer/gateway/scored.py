"""Groups as Atropos' environments send them, as episodes: checked, and split into prompt, turns and answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Episode, Turn

NOT_TRAINED = -100
_STAMPS = 200_000


@dataclass
class Stamps:
    """Which policy wrote a sequence of tokens: Atropos' groups don't say."""

    of: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def stamp(self, ids: Sequence[int], version: int) -> None:
        self.of[hash(tuple(ids))] = version
        while len(self.of) > _STAMPS:
            self.of.popitem(last=False)

    def version(self, ids: Sequence[int]) -> int | None:
        return self.of.get(hash(tuple(ids)))


@dataclass(frozen=True)
class Scored:
    episode: Episode
    advantages: list[float] | None
    """Of the completion's tokens; None: computed from the rewards."""
    versions: list[int | None]
    """Of each of its turns; None: not written by this run."""


def episodes(
    groups: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    size: int,
    stamps: Stamps,
    decode: Callable[[Sequence[int]], str],
    filler: int,
    ends: frozenset[int],
) -> list[Scored]:
    """One per row. Raises SpecError, in words, where they don't fit the run."""
    for group in groups:
        if (found := len(group["tokens"])) != size:
            raise SpecError(
                f"An environment of Atropos sends groups of {found}, and the run has {size} completions for each "
                f"prompt. Start the environment with --env.group_size {size}, or set num_generations to {found}."
            )
    members = [(group, place) for group in groups for place in range(size)]
    if len(members) != len(rows):
        raise SpecError(f"Atropos sent a batch of {len(members)} completions, and the run takes {len(rows)}.")
    return [
        _scored(group, place, row, stamps=stamps, decode=decode, filler=filler, ends=ends)
        for (group, place), row in zip(members, rows, strict=True)
    ]


def _scored(
    group: Mapping[str, Any],
    place: int,
    row: Mapping[str, Any],
    *,
    stamps: Stamps,
    decode: Callable[[Sequence[int]], str],
    filler: int,
    ends: frozenset[int],
) -> Scored:
    tokens, mask = group["tokens"][place], group["masks"][place]
    if len(tokens) != len(mask) or not tokens:
        raise SpecError(f"Atropos sent {len(tokens)} tokens with a mask of {len(mask)}.")
    start = next((at for at, value in enumerate(mask) if value != NOT_TRAINED), len(mask))
    start = max(start, 1)  # a completion needs something before it
    ids, own = list(tokens[start:]), [int(value != NOT_TRAINED) for value in mask[start:]]
    if not ids:
        ids, own = [filler], [0]
    prompt = [{"role": "user", "content": decode(tokens[:start])}]
    episode = Episode(row, 0, prompt, list(tokens[:start]), ids, own)
    episode.logprobs = _logprobs(group, place, start, own)
    episode.turns = list(_turns(ids, own, decode))
    reward = {"role": "user", "content": "", "tokens": 0, "reward": float(group["scores"][place])}
    episode.turns[-1].answers.append(reward)
    episode.end = "eos" if ids[-1] in ends else "stop"
    versions = [stamps.version(ids[turn.start : turn.stop]) for turn in episode.turns if any(own)]
    return Scored(episode, _advantages(group, place, start, len(ids)), versions)


def _logprobs(group: Mapping[str, Any], place: int, start: int, own: Sequence[int]) -> list[float | None]:
    """Atropos writes 1.0 where nothing was sampled. Empty: the environment sends none."""
    every = group.get("inference_logprobs")
    if not every:
        return []
    values = [*every[place][start:], *[1.0] * len(own)][: len(own)]
    return [(value if value <= 0 else None) if mine else 0.0 for value, mine in zip(values, own, strict=True)]


def _turns(ids: Sequence[int], own: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[Turn]:
    turn: Turn | None = None
    for mine, run in groupby(range(len(ids)), key=lambda at: own[at]):
        at = list(run)
        text = decode(ids[at[0] : at[-1] + 1])
        if mine:
            if turn is not None:
                yield turn
            turn = Turn(at[0], at[-1] + 1, {"role": "assistant", "content": text, "tokens": len(at)})
        else:
            turn = turn or Turn(0, 0, {"role": "assistant", "content": "", "tokens": 0})
            turn.answers.append({"role": "user", "content": text, "tokens": len(at)})
    if turn is not None:
        yield turn


def _advantages(group: Mapping[str, Any], place: int, start: int, length: int) -> list[float] | None:
    overrides = (group.get("overrides") or [{}] * (place + 1))[place] or {}
    together = group.get("group_overrides") or {}
    if overrides.get("set_advantage_to_zero") or together.get("set_advantage_to_zero"):
        return [0.0] * length
    every = group.get("advantages")
    if not every:
        return None
    values = [float(value) for value in every[place]]
    return [*values[start:], *[0.0] * length][:length]
