"""Scoring one completion, as tests of rewards do it."""

from __future__ import annotations

from typing import Any

from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost
from workers.rewards.scoring import score

PURE = [key for key, reward in LIBRARY.items() if reward.cost is Cost.PURE]


def one(
    key: str, completion: Completion | str, answer: Any = None, params: dict[str, Any] | None = None
) -> float | None:
    """The score, after the parameters were checked as a form checks them."""
    assert LIBRARY[key].check(params or {}) == []
    given = score(LIBRARY[key], [completion], [{"answer": answer}], params or {})
    assert given.failures == []
    return given.values[0]
