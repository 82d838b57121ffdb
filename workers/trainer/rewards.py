"""TRL reward functions made of the run's reward specs and the library."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from workers.contract import RewardSpec
from workers.rewards.library import LIBRARY
from workers.trainer.data import Row, Rows, completion_text

RewardFunction = Callable[..., list[float | None]]


def functions(specs: Sequence[RewardSpec], rows: Rows) -> list[RewardFunction]:
    return [_function(spec, rows) for spec in specs]


def _function(spec: RewardSpec, rows: Rows) -> RewardFunction:
    """Called by TRL with the columns of a batch. Its name names the charts.

    A row that the reward raises on scores None, so that one odd completion doesn't end a day of training; the
    share of such rows is a metric, and the first traceback is in the log.
    """
    reward = LIBRARY[spec.function]
    reported = False

    def score(completions: list[Any], row: list[int], log_metric: Callable[[str, float], None], **_: Any) -> Any:
        nonlocal reported
        texts = [completion_text(completion) for completion in completions]
        asked = [rows.by_id[i] for i in row]
        try:
            scores, failed = reward.score_batch(texts, asked, spec.params), 0
        except Exception:
            if not reported:
                reported = True
                print(f"Reward {spec.name!r} raised; its row scores nothing.", file=sys.stderr)
                traceback.print_exc()
            scores, failed = _one_by_one(reward.score, texts, asked, spec)
        log_metric(f"rewards/{spec.name}/failed", failed / max(len(texts), 1))
        return scores

    score.__name__ = spec.name
    return score


def _one_by_one(
    score: Callable[[str, Row, Any], float | None], texts: list[str], asked: list[Row], spec: RewardSpec
) -> tuple[list[float | None], int]:
    scores: list[float | None] = []
    failed = 0
    for text, row in zip(texts, asked, strict=True):
        try:
            scores.append(score(text, row, spec.params))
        except Exception:  # reported by the caller, with its traceback; here it is counted
            scores.append(None)
            failed += 1
    return scores, failed
