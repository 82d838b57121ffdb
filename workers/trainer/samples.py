"""samples.jsonl: the completions of each generation with their rewards, one prompt group a line."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.trainer.data import Rows, prompt_text
from workers.trainer.metrics import LineFile


@dataclass(frozen=True)
class Sample:
    """One completion, as its rank knows it."""

    row: int
    text: str
    tokens: int
    ended: bool
    """The model ended it; False: it was cut at the longest length."""
    rewards: list[float]
    """One for each reward function; NaN where it gave none."""
    advantage: float


class SampleFile:
    def __init__(self, path: Path, *, rows: Rows, names: list[str], weights: list[float], writes: bool) -> None:
        self._file = LineFile(path, writes=writes)
        self._rows = rows
        self._names = names
        self._weights = weights

    def write(self, samples: list[Sample], *, group: int, step: int, mode: str) -> None:
        """`samples` of all ranks in rank order, in which the `group` completions of a prompt stand side by side."""
        now = time.time()
        for start in range(0, len(samples), group):
            members = samples[start : start + group]
            row = self._rows.by_id[members[0].row]
            self._file.write(
                {
                    "step": step,
                    "t": now,
                    "row": row["row"],
                    "prompt": prompt_text(row["prompt"]),
                    "answer": row.get("answer"),
                    "completions": [self._completion(sample) for sample in members],
                    "mode": mode,
                }
            )

    def _completion(self, sample: Sample) -> dict[str, Any]:
        given = [None if math.isnan(reward) else reward for reward in sample.rewards]
        weighted = [w * reward for w, reward in zip(self._weights, given, strict=True) if reward is not None]
        return {
            "text": sample.text,
            "tokens": sample.tokens,
            "ended": sample.ended,
            "rewards": dict(zip(self._names, given, strict=True)),
            "reward": sum(weighted) if weighted else None,
            "advantage": sample.advantage,
        }
