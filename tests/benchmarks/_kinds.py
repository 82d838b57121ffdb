"""Kinds of histories that need a closer look (_ill_kinds.py, _healthy_kinds.py), and what they are made of.

Each kind draws its severity, its length and the run around it, so that no two of its histories are alike. Held-out
histories draw from wider ranges and other choices than those in practice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks._policies import Change, Policy


class Draw:
    """Parameters of one history."""

    def __init__(self, name: str, seed: int, *, held_out: bool) -> None:
        self.held_out = held_out
        self.random = random.Random(f"{'held-out ' * held_out}{name} {seed}")

    def within(self, low: float, high: float) -> float:
        margin = 0.15 * (high - low) * self.held_out
        return self.random.uniform(low - margin, high + margin)

    def choose(self, practice: Sequence[Any], held_out: Sequence[Any]) -> Any:
        return self.random.choice(held_out if self.held_out else practice)

    def setting(self, **given: Any) -> dict[str, Any]:
        """A run of usual size, unless given otherwise."""
        usual = {
            "updates": self.choose((1, 1, 2, 4), (1, 1, 2, 3, 6)),
            "prompts": self.choose((8, 16, 32), (12, 16, 24)),
            "group": self.choose((8, 16), (6, 8, 12)),
            "step_s": self.choose((4.0, 15.0, 60.0), (6.0, 25.0, 90.0)),
            "speed": self.within(0.01, 0.025),
            "start": self.within(-1.4, -0.4),
            "save_every": self.choose((0, 100), (0, 70)),
            "eval_every": 0,
        }
        return usual | given


@dataclass(frozen=True)
class Made:
    setting: dict[str, Any]
    change: Change | None = None
    onset: int = 60
    """In generations; 0: from the first step."""
    generations: int = 150
    """After the onset."""


@dataclass(frozen=True)
class Kind:
    make: Callable[[Draw], Made]
    rules: frozenset[str] = frozenset()
    """Those that name it; none for a healthy run."""
    cause: str = ""
    """Pattern of the words by which the advice names the cause."""


def by(**changes: Callable[[float, float], float]) -> Change:
    """Change attributes by functions of (generations or steps since the onset, the value without illness)."""

    def change(policy: Policy, since: int) -> None:
        for name, of in changes.items():
            setattr(policy, name, of(since, getattr(policy, name)))

    return change


def towards(value: float, steps: float) -> Callable[[float, float], float]:
    return lambda since, was: was + (value - was) * min(1.0, since / steps)


def to(value: Any) -> Callable[[float, Any], Any]:
    return lambda since, was: value
