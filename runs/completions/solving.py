"""What counts as a solved completion: said in a sentence, and the same for ingest, the pages and the export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.library import LIBRARY

SHARE = 0.9
"""Of the way from a reward's lowest value to its highest."""


@dataclass(frozen=True)
class SolvedBound:
    reward: str
    at_least: float
    low: float
    high: float


@dataclass(frozen=True)
class Solving:
    """Every bound is reached. No bounds: the run's rewards have no top, and nothing counts as solved."""

    bounds: tuple[SolvedBound, ...]
    checks: bool
    """The bounds are of rewards that compare with the dataset's answer, or run its tests."""

    def solved(self, rewards: object) -> bool:
        """By a completion's rewards; one that didn't apply to the row (None) is left out."""
        if not isinstance(rewards, Mapping):
            return False
        scores = [(number(rewards.get(bound.reward)), bound.at_least) for bound in self.bounds]
        given = [(score, least) for score, least in scores if score is not None]
        return bool(given) and all(score >= least for score, least in given)

    def sentence(self) -> str:
        if not self.bounds:
            return "None of this run's rewards has a highest value, so no completion counts as solved."
        words = [f"{b.reward} is at least {b.at_least:g} (of {b.low:g} to {b.high:g})" for b in self.bounds]
        why = (
            "" if self.checks else " No reward compares with the dataset's answer, so all rewards with a maximum count."
        )
        return f"A completion counts as solved when {_listed(words)}.{why}"


def of(spec: Mapping[str, Any]) -> Solving:
    """From a frozen spec as it is stored, of whatever age: the rewards that check the answer or run its tests, else all
    with a top."""
    known = []
    for part in _parts(spec):
        reward = LIBRARY.get(str(part.get("function")))
        weight = number(part.get("weight", 1.0))
        low, high = reward.expected_of(part.get("params")) if reward is not None else (0.0, None)
        if reward is not None and high is not None and weight is not None and weight > 0:
            bound = SolvedBound(str(part.get("name")), round(low + SHARE * (high - low), 6), low, high)
            known.append((bound, not {"answer", "test_cases"}.isdisjoint(reward.needs)))
    checks = tuple(bound for bound, checks in known if checks)
    return Solving(checks or tuple(bound for bound, _ in known), checks=bool(checks))


def names(spec: Mapping[str, Any]) -> list[str]:
    """The reward components in the config's order, by which each has its colour."""
    return [str(part.get("name")) for part in _parts(spec)]


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _parts(spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    rewards = spec.get("rewards")
    return [part for part in rewards if isinstance(part, Mapping)] if isinstance(rewards, list | tuple) else []


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
