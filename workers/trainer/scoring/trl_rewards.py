"""TRL's rewards behind the library's entries of the same names, scored one completion at a time: an exception is a
failure of that row only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from workers.rewards.reward import Completion, Failure, Row, Scores
from workers.rewards.scoring import failed

Make = Callable[[Any], Callable[..., Any]]
"""Factory of a TRL reward function from its parameters."""


def _accuracy(params: Any) -> Callable[..., Any]:
    from trl.rewards import accuracy_reward

    return accuracy_reward  # type: ignore[no-any-return]


def _reasoning(params: Any) -> Callable[..., Any]:
    from trl.rewards import reasoning_accuracy_reward

    return partial(reasoning_accuracy_reward, reasoning_delimiters=[params.delimiter])


def _cosine(params: Any) -> Callable[..., Any]:
    from trl.rewards import get_cosine_scaled_reward

    return get_cosine_scaled_reward(**vars(params))  # type: ignore[no-any-return]


def _think(params: Any) -> Callable[..., Any]:
    from trl.rewards import think_format_reward

    return think_format_reward  # type: ignore[no-any-return]


def _repetition(params: Any) -> Callable[..., Any]:
    from trl.rewards import get_repetition_penalty_reward

    return get_repetition_penalty_reward(params.ngram_size, params.max_penalty)  # type: ignore[no-any-return]


def _overlong(params: Any) -> Callable[..., Any]:
    from trl.rewards import get_soft_overlong_punishment

    return get_soft_overlong_punishment(params.max_completion_len, params.soft_punish_cache)  # type: ignore[no-any-return]


def _scorer(make: Make, *, solved: bool = False) -> Callable[..., Scores]:
    """`solved`: the reward compares with the row's solution, and doesn't apply to rows without one."""

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
