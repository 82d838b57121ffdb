"""TRL's rewards for the library's entries of the same names, scored one completion at a time, so that an exception is a
failure of that row only."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from workers.rewards.extract import right_answers
from workers.rewards.reward import Completion, Failure, Row, Scores
from workers.rewards.scoring import failure_of

Make = Callable[[Any, Any], Callable[..., Any]]
"""Function from (trl.rewards, the parameters) to TRL's reward function."""


def _scorer(make: Make, *, needs_solution: bool = False) -> Callable[..., Scores]:
    """Return a scorer that wraps a reward. `needs_solution`: whether the reward compares with the row's solution, so
    that rows without one get no score."""

    def scores(completions: Sequence[Completion], rows: Sequence[Row], params: Any) -> Scores:
        from trl import rewards

        function = make(rewards, params)
        values: list[float | None] = []
        failures: list[Failure] = []
        for index, (completion, row) in enumerate(zip(completions, rows, strict=True)):
            solutions = [row["solution"]] if row.get("solution") else right_answers(row)
            value = None
            if solutions or not needs_solution:
                count = len(solutions) or 1
                try:
                    reward_values = function(
                        completions=[[{"role": "assistant", "content": completion.text}]] * count,
                        solution=[str(solution) for solution in solutions] or ["None"],
                        completion_ids=[getattr(completion, "ids", ())] * count,
                    )
                    value = max((score for score in reward_values if score is not None), default=None)
                except Exception as error:  # raised by a library that parses model output
                    failures.append(failure_of(index, error))
            values.append(value)
        return Scores(values, failures)

    return scores


SCORERS: dict[str, Callable[..., Scores]] = {
    "trl_accuracy": _scorer(lambda trl, params: trl.accuracy_reward, needs_solution=True),
    "trl_reasoning_accuracy": _scorer(
        lambda trl, params: partial(trl.reasoning_accuracy_reward, reasoning_delimiters=[params.delimiter]),
        needs_solution=True,
    ),
    "trl_cosine_scaled": _scorer(lambda trl, params: trl.get_cosine_scaled_reward(**vars(params)), needs_solution=True),
    "trl_think_format": _scorer(lambda trl, params: trl.think_format_reward),
    "trl_repetition_penalty": _scorer(
        lambda trl, params: trl.get_repetition_penalty_reward(params.ngram_size, params.max_penalty)
    ),
    "trl_soft_overlong": _scorer(
        lambda trl, params: trl.get_soft_overlong_punishment(params.max_completion_len, params.soft_punish_cache)
    ),
}
