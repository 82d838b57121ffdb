"""The definition of a solved completion, shared by ingest, pages and exports, and its description."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runs.engine.records import number
from workers.contract.run.row_names import rows_of
from workers.rewards.library import LIBRARY

SHARE = 0.9
"""Share of a reward's range that a solved completion must reach."""


@dataclass(frozen=True)
class SolvedBound:
    reward: str
    at_least: float
    low: float
    high: float


@dataclass(frozen=True)
class Solving:
    """The bounds that a completion must reach to count as solved, or empty if the run's rewards have no maximum."""

    bounds: tuple[SolvedBound, ...]
    checks: bool
    """True if the bounds belong to rewards that check the dataset's answer or run its tests."""

    def is_solved(self, rewards: object) -> bool:
        """Return whether a completion's rewards reach the bounds. Rewards that don't apply to the row are ignored."""
        if not isinstance(rewards, Mapping):
            return False
        scores = [(number(rewards.get(bound.reward)), bound.at_least) for bound in self.bounds]
        applicable_scores = [(score, bound) for score, bound in scores if score is not None]
        return bool(applicable_scores) and all(score >= bound for score, bound in applicable_scores)

    def sentence(self) -> str:
        if not self.bounds:
            return "None of this run's rewards has a maximum, so no completion counts as solved."
        bounds = [f"{b.reward} is at least {b.at_least:g} (of {b.low:g} to {b.high:g})" for b in self.bounds]
        bounds_text = " and ".join(filter(None, (", ".join(bounds[:-1]), bounds[-1])))
        sentence = f"A completion counts as solved when {bounds_text}."
        if self.checks:
            return sentence
        return f"{sentence} No reward checks the dataset's answer, so all rewards with a maximum are used."


def of(spec: Mapping[str, Any]) -> Solving:
    """Derive the bounds from a stored spec of any version. They are those of the rewards that check the answer or run
    tests, or of all rewards with a maximum if there are none."""
    bounds = []
    for part in _parts(spec):
        reward = LIBRARY.get(str(part.get("function")))
        weight = number(part.get("weight", 1.0))
        low, high = reward.expected_of(part.get("params")) if reward is not None else (0.0, None)
        if reward is not None and high is not None and weight is not None and weight > 0:
            bound = SolvedBound(str(part.get("name")), round(low + SHARE * (high - low), 6), low, high)
            bounds.append((bound, not {"answer", "test_cases"}.isdisjoint(reward.needs)))
    checks = tuple(bound for bound, checks in bounds if checks)
    return Solving(checks or tuple(bound for bound, _ in bounds), checks=bool(checks))


def names(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of the reward components in the config's order, which determines their colours, followed by
    those that only evaluations compute."""
    return [str(part.get("name")) for key in ("rewards", "eval_rewards") for part in _parts(spec, key)]


def limited(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the components that apply only to some rows, each with a description of these."""
    parts = [part for key in ("rewards", "eval_rewards") for part in _parts(spec, key) if part.get("applies_to")]
    return {str(part.get("name")): rows_of(list(map(str, part["applies_to"]))) for part in parts}


def _parts(spec: Mapping[str, Any], key: str = "rewards") -> Iterable[Mapping[str, Any]]:
    rewards = spec.get(key)
    return [part for part in rewards if isinstance(part, Mapping)] if isinstance(rewards, list | tuple) else []
