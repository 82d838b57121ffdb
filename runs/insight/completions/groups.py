"""A prompt group as the trainer wrote it: its figures, its form without texts, and reading either."""

from __future__ import annotations

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

_BIG = 2**31
FIGURES = "figures"
POLICY = "policy"
"""Where a group without texts keeps its figures: [reward, advantage, tokens, end, [reward of each name]], and
of an episode its turns."""


@dataclass(frozen=True)
class GroupFigures:
    row: int | None
    mode: str
    count: int
    solved: int
    low: float | None
    mean: float | None
    high: float | None
    size: int


@dataclass(frozen=True)
class StoredCompletion:
    number: int
    """Position in the group, from 1."""
    text: str | None
    """None: deleted."""
    turns: list[Any] | None
    """The messages of a chat or of tool use, if there was more than a text."""
    tokens: int | None
    end: str
    """A key of runs.insight.completions.filters.ENDS; empty: unknown."""
    rewards: dict[str, float | None]
    reward: float | None
    advantage: float | None
    kept_turns: int | None = None
    """Of an episode whose messages are deleted."""

    @cached_property
    def facts(self) -> EpisodeFacts | None:
        """None: it is one text, or its messages are deleted."""
        return episodes.facts(self.turns) if self.turns else None

    @property
    def turn_count(self) -> int | None:
        """None: unknown, as its text is deleted and it wasn't known for an episode."""
        return self.facts.turns if self.facts else self.kept_turns if self.text is None else 1

    @property
    def words(self) -> str:
        """All that can be searched: the text alone is an episode's last message."""
        return episodes.words(self.turns) if self.turns else self.text or ""

    @property
    def written(self) -> str | None:
        """What the model wrote, with its calls. None: deleted."""
        return episodes.words(self.turns, written=True) if self.turns else self.text


def figures(data: Mapping[str, Any], solving: Solving) -> GroupFigures:
    entries = _entries(data)
    totals = [total for entry in entries if (total := number(entry.get("reward"))) is not None]
    row, mode = data.get("row"), data.get("mode")
    return GroupFigures(
        row=row if isinstance(row, int) and not isinstance(row, bool) and -_BIG <= row < _BIG else None,
        mode=mode[:8] if isinstance(mode, str) and mode else "train",
        count=len(entries),
        solved=sum(solving.solved(entry.get("rewards")) for entry in entries),
        low=min(totals, default=None),
        mean=mean(totals) if totals else None,
        high=max(totals, default=None),
        size=len(msgspec.json.encode(data)),
    )


def thinned(data: Mapping[str, Any]) -> dict[str, Any]:
    """The group without its texts."""
    if FIGURES in data:
        return dict(data)
    stored = completions(data)
    names = list(dict.fromkeys(name for one in stored for name in one.rewards))
    return {
        **({POLICY: data[POLICY]} if POLICY in data else {}),
        "names": names,
        FIGURES: [
            [
                *(_short(o.reward), _short(o.advantage), o.tokens, o.end, [_short(o.rewards.get(n)) for n in names]),
                *((o.facts.turns,) if o.facts else ()),
            ]
            for o in stored
        ],
    }


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
        text=_text(entry.get("text")),
        turns=turns if isinstance(turns, list) and turns else None,
        tokens=None if tokens is None else int(tokens),
        end=_end(entry),
        rewards={str(k): number(v) for k, v in rewards.items()} if isinstance(rewards, Mapping) else {},
        reward=number(entry.get("reward")),
        advantage=number(entry.get("advantage")),
    )


def _end(entry: Mapping[str, Any]) -> str:
    """How the completion ended. Trainers of earlier versions stored only whether the model ended it."""
    end = entry.get("end")
    if isinstance(end, str) and end:
        return end
    ended = entry.get("ended")
    return "eos" if ended is True else "length" if ended is False else ""


def _entries(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = data.get("completions")
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
