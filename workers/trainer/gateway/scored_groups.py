"""Turns the groups that Atropos' environments send into episodes: checked, and split into prompt and turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Episode, EpisodeTurn

NOT_TRAINED = -100
_STAMPS = 200_000


@dataclass
class Stamps:
    """Remembers which policy version wrote a token sequence, which Atropos' groups don't tell."""

    of: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def stamp(self, ids: Sequence[int], version: int) -> None:
        self.of[hash(tuple(ids))] = version
        while len(self.of) > _STAMPS:
            self.of.popitem(last=False)

    def version(self, ids: Sequence[int]) -> int | None:
        return self.of.get(hash(tuple(ids)))


def episodes_of(
    groups: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    size: int,
    stamps: Stamps,
    decode: Callable[[Sequence[int]], str],
    filler: int,
    ends: frozenset[int],
) -> tuple[list[Episode], list[int | None]]:
    """Return one episode per row, and the policy version of each turn (None: not written by this run).

    Raises SpecError if the groups don't fit the run.
    """
    for group in groups:
        if (count := len(group["tokens"])) != size:
            raise SpecError(
                f"An environment of Atropos sends groups of {count}, and the run has {size} completions for each "
                f"prompt. Start the environment with --env.group_size {size}, or set num_generations to {count}."
            )
    members = [(group, place) for group in groups for place in range(size)]
    if len(members) != len(rows):
        raise SpecError(f"Atropos sent a batch of {len(members)} completions, and the run takes {len(rows)}.")
    episodes = [
        _episode(group, place, row, decode=decode, filler=filler, ends=ends)
        for (group, place), row in zip(members, rows, strict=True)
    ]
    turns = [(episode, turn) for episode in episodes if any(episode.own) for turn in episode.turns]
    return episodes, [stamps.version(episode.ids[turn.start : turn.stop]) for episode, turn in turns]


def _episode(
    group: Mapping[str, Any],
    place: int,
    row: Mapping[str, Any],
    *,
    decode: Callable[[Sequence[int]], str],
    filler: int,
    ends: frozenset[int],
) -> Episode:
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
    episode.add_reward(float(group["scores"][place]))
    episode.end = "eos" if ids[-1] in ends else "stop"
    episode.advantages = _advantages(group, place, start, len(ids))
    return episode


def _logprobs(group: Mapping[str, Any], place: int, start: int, own: Sequence[int]) -> list[float | None]:
    """Return the log-probabilities of the completion's tokens; empty if the environment sends none.

    Atropos writes 1.0 for tokens that weren't sampled.
    """
    logprobs = group.get("inference_logprobs")
    if not logprobs:
        return []
    values = [*logprobs[place][start:], *[1.0] * len(own)][: len(own)]
    return [(value if value <= 0 else None) if sampled else 0.0 for value, sampled in zip(values, own, strict=True)]


def _turns(ids: Sequence[int], own: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[EpisodeTurn]:
    turn: EpisodeTurn | None = None
    for sampled, places in groupby(range(len(ids)), key=lambda place: own[place]):
        at = list(places)
        text = decode(ids[at[0] : at[-1] + 1])
        if sampled:
            if turn is not None:
                yield turn
            turn = EpisodeTurn(at[0], at[-1] + 1, {"role": "assistant", "content": text, "tokens": len(at)})
        else:
            turn = turn or EpisodeTurn(0, 0, {"role": "assistant", "content": "", "tokens": 0})
            turn.answers.append({"role": "user", "content": text, "tokens": len(at)})
    if turn is not None:
        yield turn


def _advantages(group: Mapping[str, Any], place: int, start: int, length: int) -> list[float] | None:
    """Return the environment's own advantages, one per token; None: they are computed from the rewards."""
    overrides = (group.get("overrides") or [{}] * (place + 1))[place] or {}
    group_overrides = group.get("group_overrides") or {}
    if overrides.get("set_advantage_to_zero") or group_overrides.get("set_advantage_to_zero"):
        return [0.0] * length
    advantages = group.get("advantages")
    if not advantages:
        return None
    values = [float(value) for value in advantages[place]]
    return [*values[start:], *[0.0] * length][:length]
