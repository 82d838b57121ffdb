"""Metrics of episodes over all ranks, with the names in workers.contract.run.episodes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from workers.contract.run.episodes import (
    CALLS,
    EPISODES_CUT,
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

_LIMIT_ENDS = frozenset({"length", EpisodeEnd.TURNS, EpisodeEnd.TIME})
_MAX_CHARTED_TOOLS = 32


@dataclass(frozen=True)
class EpisodeStats:
    """Statistics of one episode, exchanged between ranks."""

    turns: int
    end: str
    tokens: int
    own: int
    seconds: float
    calls: tuple[tuple[str, float, str], ...]

    @classmethod
    def of(cls, episode: Episode) -> "EpisodeStats":
        calls = tuple(
            (str(answer.get("name", "")), float(answer.get("seconds", 0.0)), str(answer.get("error", "")))
            for turn in episode.turns
            for answer in turn.answers
            if answer["role"] == "tool"
        )
        return cls(len(episode.turns), episode.end, len(episode.ids), sum(episode.own), episode.seconds, calls)


def metrics(episodes: Sequence[EpisodeStats], tools: Sequence[str] = ()) -> dict[str, float]:
    """Return the metrics of all ranks' episodes. `tools`: names of the tools that get metrics of their own."""
    calls = [call for episode in episodes for call in episode.calls]
    tokens = sum(episode.tokens for episode in episodes)
    values = {
        TURNS_MEAN: fmean(episode.turns for episode in episodes),
        TURNS_MAX: float(max(episode.turns for episode in episodes)),
        EPISODES_CUT: _share(episode.end in _LIMIT_ENDS for episode in episodes),
        FAILED: _share(episode.end == EpisodeEnd.FAILED for episode in episodes),
        TOOL_SHARE: (tokens - sum(episode.own for episode in episodes)) / max(tokens, 1),
        SECONDS_P95: percentile([episode.seconds for episode in episodes], 95),
        CALLS: len(calls) / len(episodes),
        FAILURES: _share(bool(error) for _, _, error in calls),
    }
    for tool in tools[:_MAX_CHARTED_TOOLS]:
        seconds = [duration for name, duration, _ in calls if name == tool]
        values[tool_metric(tool, "calls")] = len(seconds) / len(episodes)
        if seconds:
            values[tool_metric(tool, "failed")] = _share(bool(error) for name, _, error in calls if name == tool)
            values[tool_metric(tool, "p50_s")] = percentile(seconds, 50)
            values[tool_metric(tool, "p95_s")] = percentile(seconds, 95)
    return values


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` % of the values don't exceed."""
    ordered_values = sorted(values)
    return ordered_values[max(0, math.ceil(len(ordered_values) * percent / 100) - 1)]


def _share(values: Iterable[bool]) -> float:
    flags = list(values)
    return sum(flags) / len(flags) if flags else 0.0
