"""Tries rewards on completions of one row: what the trainer would score, and which way it would push."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.datasets.mapping import prompt_text
from controlplane.datasets.models import DatasetVersion
from workers.contract import RewardSpec
from workers.rewards import LIBRARY

MOST_COMPLETIONS = 16
LONGEST_COMPLETION = 20_000
MADE_UP = {"row": 0, "prompt": "What is 6 times 7?", "answer": "42"}
"""The row to try on while there is no dataset."""


@dataclass(frozen=True)
class Column:
    """One component's scores."""

    spec: RewardSpec
    scores: list[float | None]
    milliseconds: float
    top: float | None
    """The highest score there can be; None: no bound."""


@dataclass(frozen=True)
class Scored:
    text: str
    scores: list[float | None]
    total: float
    advantage: float
    bar: float
    """Width of the advantage's bar, 0 to 50 of 100."""

    @property
    def left(self) -> float:
        """Where the bar of a negative advantage begins."""
        return 50 - self.bar


@dataclass(frozen=True)
class Trial:
    columns: list[Column]
    group: list[Scored]
    mean: float
    deviation: float


def sample_rows(version: DatasetVersion | None) -> list[dict[str, Any]]:
    """Real rows of a ready version, as its check kept them."""
    rows = (version.report.get("mapped") or {}).get("preview", []) if version else []
    return [row for row in rows if "prompt" in row] or [MADE_UP]


def shown_prompt(row: Mapping[str, Any]) -> str:
    return prompt_text(row["prompt"])


def suggested(row: Mapping[str, Any]) -> list[str]:
    """Completions to start from: right, right but without the form, wrong in the right form, and neither."""
    answer = row.get("answer")
    right = "42" if answer is None else str(answer)
    thought = "I take what is given and work it out step by step."
    return [
        f"<think>\n{thought}\n</think>\n<answer>{right}</answer>",
        f"The answer is {right}",
        f"<think>\n{thought}\n</think>\n<answer>{_wrong(right)}</answer>",
        "I don't know.",
    ]


def try_on(specs: Sequence[RewardSpec], row: Mapping[str, Any], completions: Sequence[str]) -> Trial:
    """Scores as the trainer computes them: the library's functions, weighted, a score of None counting nothing."""
    texts = [text[:LONGEST_COMPLETION] for text in completions if text.strip()][:MOST_COMPLETIONS]
    columns = [_column(spec, row, texts) for spec in specs]
    totals = [math.fsum(_weighted(column, i) for column in columns) for i in range(len(texts))]
    mean = math.fsum(totals) / len(totals) if totals else 0.0
    deviation = _deviation(totals, mean)
    # The loss's default scaling, with its guard against a group without spread.
    advantages = [(total - mean) / (deviation + 1e-4) for total in totals]
    widest = max((abs(a) for a in advantages), default=0.0) or 1.0
    group = [
        Scored(
            text, [c.scores[i] for c in columns], totals[i], advantages[i], round(50 * abs(advantages[i]) / widest, 2)
        )
        for i, text in enumerate(texts)
    ]
    return Trial(columns, group, mean, deviation)


def _column(spec: RewardSpec, row: Mapping[str, Any], texts: Sequence[str]) -> Column:
    reward = LIBRARY[spec.function]
    started = time.perf_counter()
    scores = reward.score_batch(texts, [row] * len(texts), spec.params)
    return Column(spec, scores, 1000 * (time.perf_counter() - started), reward.range[1])


def _weighted(column: Column, i: int) -> float:
    return column.spec.weight * (column.scores[i] or 0.0)


def _deviation(totals: Sequence[float], mean: float) -> float:
    """The sample's standard deviation, as the trainer takes it."""
    if len(totals) < 2:
        return 0.0
    return math.sqrt(math.fsum((total - mean) ** 2 for total in totals) / (len(totals) - 1))


def _wrong(right: str) -> str:
    """An answer of the same kind that is not the right one."""
    try:
        return str(int(right.replace(",", "")) + 1)
    except ValueError:
        return f"not {right}"
