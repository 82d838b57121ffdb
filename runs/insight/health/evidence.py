"""Columns of the history that the memory extends beyond the newest lines: how reward and length correlate within groups
of stored completions, and the rewards of evaluations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runs.insight.completions.groups import StoredCompletion
from runs.insight.health.config import Config
from runs.insight.health.history import STRETCHES, History, MetricHistory
from workers.contract.run.evaluation import EVAL_PREFIX

LENGTH_REWARD = "within/length_reward"
"""Per step, the sum over the groups of the products of length and reward (without what right answers give), each
minus its group's mean."""
LENGTH_LENGTH = "within/length_length"
REWARD_REWARD = "within/reward_reward"
SUMS = (LENGTH_REWARD, LENGTH_LENGTH, REWARD_REWARD)


class Scored(NamedTuple):
    """The length of a completion, and its reward without the part for right answers."""

    tokens: float
    reward: float
    """The reward without what right answers give."""


def note_groups(history: History, groups: Iterable[tuple[int, Sequence[StoredCompletion]]]) -> None:
    """Add the sums over new groups, each with its step, to the history's columns."""
    sums: dict[int, list[float]] = {}
    for step, group in groups:
        for index, value in enumerate(_sums([each for each in map(scored_by(history.config), group) if each])):
            sums.setdefault(step, [0.0, 0.0, 0.0])[index] += value
    for index, name in enumerate(SUMS):
        _append(history, name, [(step, values[index]) for step, values in sorted(sums.items())])


def scored_by(config: Config) -> Callable[[StoredCompletion], Scored | None]:
    """Return a function that finds a completion's length and the part of its reward not due to right answers."""
    answers = [(part.name, part.weight) for part in config.components if part.checks and part.weight]

    def scored(completion: StoredCompletion) -> Scored | None:
        if completion.tokens is None or completion.reward is None:
            return None
        right = sum(weight * (completion.rewards.get(name) or 0.0) for name, weight in answers)
        return Scored(completion.tokens, completion.reward - right)

    return scored


@np.errstate(over="ignore", invalid="ignore")  # rewards too large for a float's square are ignored
def _sums(group: Sequence[Scored]) -> tuple[float, float, float]:
    if len(group) < 2:
        return 0.0, 0.0, 0.0
    lengths, rewards = (np.array(values, dtype=float) for values in zip(*group, strict=True))
    lengths, rewards = lengths - lengths.mean(), rewards - rewards.mean()
    sums = float((lengths * rewards).sum()), float((lengths * lengths).sum()), float((rewards * rewards).sum())
    return sums if np.isfinite(sums).all() else (0.0, 0.0, 0.0)


def _append(history: History, name: str, points: Sequence[tuple[int, float]]) -> None:
    old = history.columns.get(name)
    known_points = list(zip(old.step.tolist(), old.value.tolist(), strict=True)) if old is not None else []
    last = known_points[-1][0] if known_points else -1
    if all_points := [*known_points, *(point for point in points if point[0] > last)]:
        history.columns[name] = _column(all_points)


def _column(points: Sequence[tuple[int, float]]) -> MetricHistory:
    steps, values = zip(*points[-STRETCHES:], strict=True)
    return MetricHistory(np.array(steps, dtype=np.int64), np.zeros(len(steps)), np.array(values, dtype=float))


def to_memory(history: History) -> dict[str, list[tuple[int, float]]]:
    judges = {metric for metric, _ in history.config.judges if metric.startswith(EVAL_PREFIX)}
    return {
        name: list(zip(column.step[-STRETCHES:].tolist(), column.value[-STRETCHES:].tolist(), strict=True))
        for name, column in history.columns.items()
        if name in judges or name in SUMS
    }


def from_memory(history: History, memory: Mapping[str, Any]) -> None:
    """Extend the history's columns by the points that the newest lines no longer contain."""
    for name, points in memory.items():
        column = history.columns.get(name)
        first = int(column.step[0]) if column is not None else history.step + 1
        newer = list(zip(column.step.tolist(), column.value.tolist(), strict=True)) if column is not None else []
        if known_points := [*((step, value) for step, value in points if step < first), *newer]:
            history.columns[name] = _column(known_points)
