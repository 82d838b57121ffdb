"""Rewards on the text itself: variety of characters, and length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.reward import Params, param


@dataclass(frozen=True)
class UniqueCharsParams(Params):
    ignore_case: bool = param(False, "Count A and a as one character.")
    ignore_spaces: bool = param(False, "Leave white space out.")


@dataclass(frozen=True)
class LengthParams(Params):
    unit: str = param("characters", "What is counted.", choices=("characters", "words"))
    target: int = param(200, "Up to this length the score is 1.", min=0, max=1_000_000)
    maximum: int = param(400, "From this length on the score is 0; in between it falls evenly.", min=1, max=1_000_000)
    minimum: int = param(0, "Below this length the score falls evenly to 0 for an empty text.", min=0, max=1_000_000)

    def problem(self) -> str | None:
        if self.minimum > self.target:
            return "minimum: must not be above target"
        return None if self.target < self.maximum else "maximum: must be above target"


def unique_chars(completion: str, row: Mapping[str, Any], params: UniqueCharsParams) -> float:
    return float(len(set(_prepared(completion, params))))


def unique_chars_normalised(completion: str, row: Mapping[str, Any], params: UniqueCharsParams) -> float:
    text = _prepared(completion, params)
    return len(set(text)) / len(text) if text else 0.0


def length(completion: str, row: Mapping[str, Any], params: LengthParams) -> float:
    size = len(completion.split()) if params.unit == "words" else len(completion)
    if size < params.minimum:
        return size / params.minimum
    if size <= params.target:
        return 1.0
    return max(0.0, (params.maximum - size) / (params.maximum - params.target))


def _prepared(text: str, params: UniqueCharsParams) -> str:
    text = text.lower() if params.ignore_case else text
    return "".join(text.split()) if params.ignore_spaces else text
