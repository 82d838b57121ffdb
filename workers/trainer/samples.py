"""samples.jsonl: the completions of each generation with their rewards, one prompt group a line."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.trainer.data import Rows, prompt_text, turns
from workers.trainer.metrics import LineFile


@dataclass(frozen=True)
class Sample:
    """One completion, as its rank knows it."""

    row: int
    text: str
    tokens: int
    end: str
    """Why it ended, as `end_of` tells it."""
    rewards: list[float]
    """One for each reward function; NaN where it gave none."""
    advantage: float
    turns: list[Any] | None = None
    """The messages, where there was more than one text."""


def end_of(completion: Any, tokens: Sequence[int], *, ends: Container[int], longest: int) -> str:
    """eos: by itself | length: cut | tools: its last call of a tool led nowhere | stop: a stop word."""
    last = completion[-1] if not isinstance(completion, str) and completion else {}
    if tokens and tokens[-1] in ends and not _calls(last):
        return "eos"
    if len(tokens) >= longest:
        return "length"
    return "tools" if _calls(last) else "stop"


def _calls(message: dict[str, Any]) -> bool:
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


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
            line = {
                "step": step,
                "t": now,
                "row": row["row"],
                "prompt": prompt_text(row["prompt"]),
                "answer": row.get("answer"),
                "completions": [self._completion(sample) for sample in members],
                "mode": mode,
            }
            told = turns(row["prompt"])
            self._file.write(line if told is None else {**line, "turns": told})

    def _completion(self, sample: Sample) -> dict[str, Any]:
        given = [None if math.isnan(reward) else reward for reward in sample.rewards]
        weighted = [w * reward for w, reward in zip(self._weights, given, strict=True) if reward is not None]
        told = {} if sample.turns is None else {"turns": sample.turns}
        return {
            **told,
            "text": sample.text,
            "tokens": sample.tokens,
            "ended": sample.end == "eos",
            "end": sample.end,
            "rewards": dict(zip(self._names, given, strict=True)),
            "reward": sum(weighted) if weighted else None,
            "advantage": sample.advantage,
        }
