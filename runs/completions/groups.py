"""One prompt group as the trainer told it: its figures, what is left of it without texts, and reading either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from runs.completions.solving import Solving, number
from runs.metrics.trend import mean

_BIG = 2**31
FIGURES = "figures"
"""Where a group that is thinned out has its figures: [reward, advantage, tokens, end, [reward of each name]]."""


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
    """In its group, from 1."""
    text: str | None
    """None: not kept."""
    turns: list[Any] | None
    """The messages of a chat or of tool use, where there was more than a text."""
    tokens: int | None
    end: str
    """eos | length | stop | tools; empty: not known."""
    rewards: dict[str, float | None]
    reward: float | None
    advantage: float | None


def figures(data: Mapping[str, Any], solving: Solving) -> GroupFigures:
    told = _told(data)
    totals = [total for one in told if (total := number(one.get("reward"))) is not None]
    row, mode = data.get("row"), data.get("mode")
    return GroupFigures(
        row=row if isinstance(row, int) and not isinstance(row, bool) and -_BIG <= row < _BIG else None,
        mode=mode[:8] if isinstance(mode, str) and mode else "train",
        count=len(told),
        solved=sum(solving.solved(one.get("rewards")) for one in told),
        low=min(totals, default=None),
        mean=mean(totals) if totals else None,
        high=max(totals, default=None),
        size=len(msgspec.json.encode(data)),
    )


def thinned(data: Mapping[str, Any]) -> dict[str, Any]:
    """The group without its texts."""
    if FIGURES in data:
        return dict(data)
    told = completions(data)
    names = list(dict.fromkeys(name for one in told for name in one.rewards))
    return {
        "names": names,
        FIGURES: [
            [_short(o.reward), _short(o.advantage), o.tokens, o.end, [_short(o.rewards.get(n)) for n in names]]
            for o in told
        ],
    }


def completions(data: Mapping[str, Any]) -> list[StoredCompletion]:
    if FIGURES in data:
        names = data.get("names", [])
        return [
            StoredCompletion(i, None, None, tokens, end, dict(zip(names, scores, strict=False)), reward, advantage)
            for i, (reward, advantage, tokens, end, scores) in enumerate(data[FIGURES], 1)
        ]
    return [_completion(i, one) for i, one in enumerate(_told(data), 1)]


def _completion(index: int, one: Mapping[str, Any]) -> StoredCompletion:
    rewards, turns, tokens = one.get("rewards"), one.get("turns"), number(one.get("tokens"))
    return StoredCompletion(
        number=index,
        text=_text(one.get("text")),
        turns=turns if isinstance(turns, list) and turns else None,
        tokens=None if tokens is None else int(tokens),
        end=_end(one),
        rewards={str(k): number(v) for k, v in rewards.items()} if isinstance(rewards, Mapping) else {},
        reward=number(one.get("reward")),
        advantage=number(one.get("advantage")),
    )


def _end(one: Mapping[str, Any]) -> str:
    """Trainers of before told only whether the model ended it."""
    end = one.get("end")
    if isinstance(end, str) and end:
        return end
    ended = one.get("ended")
    return "eos" if ended is True else "length" if ended is False else ""


def _told(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    told = data.get("completions")
    return [one for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
