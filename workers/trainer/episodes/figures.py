"""Figures of episodes for the charts, over all ranks; the names are in workers.contract.run.episodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from workers.contract.run.episodes import (
    CALLS,
    CUT,
    FAILED,
    FAILURES,
    SECONDS_P95,
    TOOL_SHARE,
    TURNS_MAX,
    TURNS_MEAN,
    EpisodeEnd,
    tool_metric,
)
from workers.trainer.episodes.episode import Episode

_CUT = frozenset({"length", EpisodeEnd.TURNS, EpisodeEnd.TIME})
_MOST_CHARTED = 32
"""Tools by name: an unknown one is a name that a model made up."""


@dataclass(frozen=True)
class Told:
    """What one episode adds; small, as ranks send it to each other."""

    turns: int
    end: str
    tokens: int
    own: int
    seconds: float
    calls: tuple[tuple[str, float, str], ...]
    """(tool, seconds, error) of each."""

    @classmethod
    def of(cls, episode: Episode) -> Told:
        calls = tuple(
            (str(one.get("name", "")), float(one.get("seconds", 0.0)), str(one.get("error", "")))
            for turn in episode.turns
            for one in turn.answers
            if one["role"] == "tool"
        )
        return cls(len(episode.turns), episode.end, len(episode.ids), sum(episode.own), episode.seconds, calls)


def metrics(told: Sequence[Told], tools: Sequence[str] = ()) -> dict[str, float]:
    """`tools`: those charted by name."""
    calls = [call for one in told for call in one.calls]
    found = {
        TURNS_MEAN: fmean(one.turns for one in told),
        TURNS_MAX: float(max(one.turns for one in told)),
        CUT: _share(one.end in _CUT for one in told),
        FAILED: _share(one.end == EpisodeEnd.FAILED for one in told),
        TOOL_SHARE: sum(one.tokens - one.own for one in told) / max(sum(one.tokens for one in told), 1),
        SECONDS_P95: percentile([one.seconds for one in told], 95),
        CALLS: len(calls) / len(told),
        FAILURES: _share(bool(error) for _, _, error in calls),
    }
    by_tool: dict[str, list[tuple[str, float, str]]] = defaultdict(list)
    for call in calls:
        if call[0] in tools:
            by_tool[call[0]].append(call)
    for name in tools[:_MOST_CHARTED]:
        of_it = by_tool[name]
        found[tool_metric(name, "calls")] = len(of_it) / len(told)
        if of_it:
            found[tool_metric(name, "failed")] = _share(bool(error) for _, _, error in of_it)
            seconds = [one for _, one, _ in of_it]
            found[tool_metric(name, "p50_s")] = percentile(seconds, 50)
            found[tool_metric(name, "p95_s")] = percentile(seconds, 95)
    return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of them don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _share(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted) if counted else 0.0
