"""Stored prompt groups: their statistics, and reading and writing them with or without texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from runs.engine.gain import mean
from runs.engine.records import number
from runs.insight.completions import episodes
from runs.insight.completions.episodes import EpisodeFacts
from runs.insight.completions.solving import Solving
from workers.contract.run.prompts import MAX_SOURCE_CHARS

_INT32_LIMIT = 2**31
FIGURES = "figures"
"""Key under which a group without texts stores [reward, advantage, tokens, end, [reward of each name]] for each
completion, followed by the number of turns if it is an episode."""
MAX_SOURCES = 64
"""Maximum number of a prompt's sources and tags that are stored."""
POLICY = "policy"
"""Key of the step whose weights generated a group, if the group was generated one step ahead."""


@dataclass(frozen=True)
class GroupFigures:
    row: int | None
    mode: str
    count: int
    solved: int
    scored: int
    unfinished: int
    low: float | None
    mean: float | None
    high: float | None
    size: int
    sources: str


@dataclass(frozen=True)
class StoredCompletion:
    number: int
    text: str | None
    """The text; None if it has been deleted."""
    turns: list[Any] | None
    """The messages of a chat or of tool use; None for plain text."""
    tokens: int | None
    end: str
    """A key of runs.insight.completions.filters.ENDS, or "" if unknown."""
    rewards: dict[str, float | None]
    reward: float | None
    advantage: float | None
    kept_turns: int | None = None

    @cached_property
    def facts(self) -> EpisodeFacts | None:
        return episodes.facts(self.turns) if self.turns else None

    @property
    def turn_count(self) -> int | None:
        """Number of turns, or None if an earlier version deleted the text without recording it."""
        return self.facts.turns if self.facts else self.kept_turns if self.text is None else 1

    @property
    def full_text(self) -> str:
        """The text to search: all messages of an episode, since `text` is only the last one."""
        return episodes.full_text(self.turns) if self.turns else self.text or ""

    @property
    def written(self) -> str | None:
        """The text and calls that the model wrote, or None if they have been deleted."""
        return episodes.full_text(self.turns, written=True) if self.turns else self.text


def figures(data: Mapping[str, Any], solving: Solving) -> GroupFigures:
    entries = _entries(data)
    scored = [entry for entry in entries if number(entry.get("reward")) is not None]
    totals = [total for entry in scored if (total := number(entry.get("reward"))) is not None]
    row, mode = data.get("row"), data.get("mode")
    return GroupFigures(
        row=row if isinstance(row, int) and not isinstance(row, bool) and -_INT32_LIMIT <= row < _INT32_LIMIT else None,
        mode=mode[:8] if isinstance(mode, str) and mode else "train",
        count=len(entries),
        solved=sum(solving.is_solved(entry.get("rewards")) for entry in entries),
        scored=len(scored),
        unfinished=sum(entry.get("end") in ("length", "stop") for entry in scored),
        low=min(totals, default=None),
        mean=mean(totals) if totals else None,
        high=max(totals, default=None),
        size=len(msgspec.json.encode(data)),
        sources=_lines_of(data.get("sources")),
    )


def _lines_of(sources: object) -> str:
    names = [name for name in sources if isinstance(name, str)] if isinstance(sources, list) else []
    return "".join(between_lines(name) for name in names[:MAX_SOURCES])


def between_lines(source: str) -> str:
    """Return a source or tag as SampleRow.sources contains it."""
    return f"\n{' '.join(source.replace(chr(0), '').split())[:MAX_SOURCE_CHARS]}\n"


def without_texts(data: Mapping[str, Any]) -> dict[str, Any]:
    if FIGURES in data:
        return dict(data)
    stored_completions = completions(data)
    names = list(dict.fromkeys(name for completion in stored_completions for name in completion.rewards))
    policy = {POLICY: data[POLICY]} if POLICY in data else {}
    return {**policy, "names": names, FIGURES: [_figures(completion, names) for completion in stored_completions]}


def _figures(completion: StoredCompletion, names: list[str]) -> list[Any]:
    return [
        _round(completion.reward),
        _round(completion.advantage),
        completion.tokens,
        completion.end,
        [_round(completion.rewards.get(name)) for name in names],
        *((completion.facts.turns,) if completion.facts else ()),
    ]


def completions(data: Mapping[str, Any]) -> list[StoredCompletion]:
    if FIGURES in data:
        names = data.get("names", [])
        return [
            StoredCompletion(
                i, None, None, tokens, end, dict(zip(names, scores, strict=False)), reward, advantage, *turns
            )
            for i, (reward, advantage, tokens, end, scores, *turns) in enumerate(data[FIGURES], 1)
        ]
    return [_completion(i, entry) for i, entry in enumerate(_entries(data), 1)]


def _completion(index: int, entry: Mapping[str, Any]) -> StoredCompletion:
    rewards, turns, tokens = entry.get("rewards"), entry.get("turns"), number(entry.get("tokens"))
    return StoredCompletion(
        number=index,
        text=_as_text(entry.get("text")),
        turns=turns if isinstance(turns, list) and turns else None,
        tokens=None if tokens is None else int(tokens),
        end=_end(entry),
        rewards={str(k): number(v) for k, v in rewards.items()} if isinstance(rewards, Mapping) else {},
        reward=number(entry.get("reward")),
        advantage=number(entry.get("advantage")),
    )


def _end(entry: Mapping[str, Any]) -> str:
    """Return how a completion ended. Earlier trainers recorded only whether the model ended it."""
    if isinstance(end := entry.get("end"), str) and end:
        return end
    ended = entry.get("ended")
    return "eos" if ended is True else "length" if ended is False else ""


def _entries(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = data.get("completions")
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
