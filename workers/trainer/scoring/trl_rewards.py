"""TRL's rewards behind the library's entries of the same names, one completion at a time: an exception is that row's
failure alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workers.rewards.reward import Completion, Failure, Row, Scores
from workers.rewards.scoring import failed

Make = Callable[[Any], Callable[..., list[float | None]]]


def _accuracy(params: Any) -> Callable[..., list[float | None]]:
    from trl.rewards import accuracy_reward

    function: Callable[..., list[float | None]] = accuracy_reward
    return function


def _reasoning(params: Any) -> Callable[..., list[float | None]]:
    from trl.rewards import reasoning_accuracy_reward

    def scores(**columns: Any) -> list[float | None]:
        results: list[float | None] = reasoning_accuracy_reward(reasoning_delimiters=[params.delimiter], **columns)
        return results

    return scores


def _cosine(params: Any) -> Callable[..., list[float | None]]:
    from trl.rewards import get_cosine_scaled_reward

    reward: Callable[..., list[float | None]] = get_cosine_scaled_reward(
        max_len=params.max_len,
        min_value_wrong=params.min_value_wrong,
        max_value_wrong=params.max_value_wrong,
        min_value_correct=params.min_value_correct,
        max_value_correct=params.max_value_correct,
    )
    return reward


def _think(params: Any) -> Callable[..., list[float | None]]:
    from trl.rewards import think_format_reward

    function: Callable[..., list[float | None]] = think_format_reward
    return function


def _repetition(params: Any) -> Callable[..., list[float | None]]:
    from trl.rewards import get_repetition_penalty_reward

    reward: Callable[..., list[float | None]] = get_repetition_penalty_reward(params.ngram_size, params.max_penalty)
    return reward


def _overlong(params: Any) -> Callable[..., list[float | None]]:
    from trl.rewards import get_soft_overlong_punishment

    reward: Callable[..., list[float | None]] = get_soft_overlong_punishment(
        params.max_completion_len, params.soft_punish_cache
    )
    return reward


def _scorer(make: Make, *, solved: bool = False) -> Callable[..., Scores]:
    """`solved`: it compares with the row's solution, and doesn't apply to rows without one."""

    def scores(completions: Sequence[Completion], rows: Sequence[Row], params: Any) -> Scores:
        function = make(params)
        values: list[float | None] = []
        failures: list[Failure] = []
        for index, (completion, row) in enumerate(zip(completions, rows, strict=True)):
            solution = row.get("solution") or row.get("answer")
            value = None
            if solution or not solved:
                try:
                    [value] = function(
                        completions=[[{"role": "assistant", "content": completion.text}]],
                        solution=[str(solution)],
                        completion_ids=[getattr(completion, "ids", ())],
                    )
                except Exception as error:  # raised by a library that parses model output
                    failures.append(failed(index, error))
            values.append(value)
        return Scores(values, failures)

    return scores


SCORERS: dict[str, Callable[..., Scores]] = {
    "trl_accuracy": _scorer(_accuracy, solved=True),
    "trl_reasoning_accuracy": _scorer(_reasoning, solved=True),
    "trl_cosine_scaled": _scorer(_cosine, solved=True),
    "trl_think_format": _scorer(_think),
    "trl_repetition_penalty": _scorer(_repetition),
    "trl_soft_overlong": _scorer(_overlong),
}
