"""Episodes from the groups that Atropos' environments send: checked, and split into prompt and turns."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Episode, ModelTurn
from workers.trainer.gateway.conversing import Conversing

UNTRAINED_TOKEN_MASK = -100
_MAX_STAMPS = 200_000


@dataclass
class Stamps:
    """Map from token sequences to the policy versions that generated them, which Atropos' groups lack."""

    versions: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def stamp(self, ids: Sequence[int], version: int) -> None:
        self.versions[hash(tuple(ids))] = version
        while len(self.versions) > _MAX_STAMPS:
            self.versions.popitem(last=False)

    def version(self, ids: Sequence[int]) -> int | None:
        return self.versions.get(hash(tuple(ids)))


def episodes_of(
    groups: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    size: int,
    stamps: Stamps,
    conversing: Conversing,
) -> tuple[list[Episode], list[int | None]]:
    """Return one episode per row, and the policy version of each turn (None if this run didn't generate it). Raises
    SpecError if the groups don't fit the run."""
    for group in groups:
        if (count := len(group["tokens"])) != size:
            raise SpecError(
                f"An environment of Atropos sends groups of {count}, but the run has {size} completions for each "
                f"prompt. Start the environment with --env.group_size {size}, or set num_generations to {count}."
            )
    members = [(group, index) for group in groups for index in range(size)]
    if len(members) != len(rows):
        raise SpecError(f"Atropos sent a batch of {len(members)} completions, but the run needs {len(rows)}.")
    episodes = [_episode(group, index, row, conversing) for (group, index), row in zip(members, rows, strict=True)]
    turns = [(episode, turn) for episode in episodes if any(episode.own) for turn in episode.turns]
    return episodes, [stamps.version(episode.ids[turn.start : turn.stop]) for episode, turn in turns]


def _episode(group: Mapping[str, Any], index: int, row: Mapping[str, Any], conversing: Conversing) -> Episode:
    tokens, mask = group["tokens"][index], group["masks"][index]
    if len(tokens) != len(mask) or not tokens:
        raise SpecError(f"Atropos sent {len(tokens)} tokens with a mask of {len(mask)}.")
    conversing.check_tokens(tokens)
    start = next((position for position, value in enumerate(mask) if value != UNTRAINED_TOKEN_MASK), len(mask))
    start = max(start, 1)  # a completion needs something before it
    ids, loss_mask = list(tokens[start:]), [int(value != UNTRAINED_TOKEN_MASK) for value in mask[start:]]
    if not ids:
        ids, loss_mask = [conversing.filler], [0]
    prompt = [{"role": "user", "content": conversing.decode(tokens[:start])}]
    episode = Episode(row, 0, prompt, list(tokens[:start]), ids, loss_mask)
    episode.logprobs = _logprobs(group, index, start, loss_mask)
    episode.turns = list(_turns(ids, loss_mask, conversing.decode))
    episode.add_reward(float(group["scores"][index]))
    episode.end = "eos" if conversing.has_ended(ids) else "stop"
    episode.advantages = _advantages(group, index, start, len(ids))
    return episode


def _logprobs(group: Mapping[str, Any], index: int, start: int, loss_mask: Sequence[int]) -> list[float | None]:
    """Return the log-probabilities of the completion's tokens, or [] if the environment sends none. Atropos writes 1.0
    for tokens that weren't sampled."""
    logprobs = group.get("inference_logprobs")
    if not logprobs:
        return []
    values = [*logprobs[index][start:], *[1.0] * len(loss_mask)][: len(loss_mask)]
    return [
        (value if value <= 0 else None) if sampled else 0.0 for value, sampled in zip(values, loss_mask, strict=True)
    ]


def _turns(ids: Sequence[int], loss_mask: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[ModelTurn]:
    turn: ModelTurn | None = None
    for sampled, run in groupby(range(len(ids)), key=lambda index: loss_mask[index]):
        indexes = list(run)
        start, stop = indexes[0], indexes[-1] + 1
        text, tokens = decode(ids[start:stop]), stop - start
        if sampled:
            if turn is not None:
                yield turn
            turn = ModelTurn(start, stop, {"role": "assistant", "content": text, "tokens": tokens})
        else:
            turn = turn or ModelTurn(0, 0, {"role": "assistant", "content": "", "tokens": 0})
            turn.answers.append({"role": "user", "content": text, "tokens": tokens})
    if turn is not None:
        yield turn


def _advantages(group: Mapping[str, Any], index: int, start: int, length: int) -> list[float] | None:
    """Return the environment's own advantages, one per token; None to compute them from the rewards."""
    overrides = (group.get("overrides") or [{}] * (index + 1))[index] or {}
    group_overrides = group.get("group_overrides") or {}
    if overrides.get("set_advantage_to_zero") or group_overrides.get("set_advantage_to_zero"):
        return [0.0] * length
    advantages = group.get("advantages")
    if not advantages:
        return None
    values = [float(value) for value in advantages[index]]
    return [*values[start:], *[0.0] * length][:length]
