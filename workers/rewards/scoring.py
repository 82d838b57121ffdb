"""Scoring of a batch of completions with one reward, in the trainer and in the playground.

Any error of a reward (an exception, a wrong number of scores, NaN, infinity, a string) becomes a Failure of those rows,
to which the reward then doesn't apply.
"""

import functools
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers.rewards.parameters import is_finite
from workers.rewards.reward import Completion, Failure, Reward, Row, Scores
from workers.rewards.tools import Tools, Unavailable
from workers.sandbox.outcomes import SandboxUnavailable

MAX_TRACEBACK_LENGTH = 4_000


def score(
    reward: Reward,
    completions: Sequence[Completion | str],
    rows: Sequence[Row],
    params: Mapping[str, Any],
    tools: Tools | None = None,
) -> Scores:
    """Score completions and return the scores. An error of the reward never raises: it becomes a Failure.

    rows[i] is the dataset row of completions[i]; adjacent completions of one row are a group. Rewards other than
    Cost.PURE need `tools`.
    """
    built = reward.build(params)
    items = [Completion(item) if isinstance(item, str) else item for item in completions]
    if not items:
        return Scores([])
    if (reward.batch or reward.compare) and tools is None:
        return all_failed(len(items), "unavailable", f"{reward.title} can't be scored here.")
    if reward.batch and tools:
        return _validated_scores(functools.partial(reward.batch, items, rows, built, tools), len(items))
    if reward.compare and tools:
        bounds = _group_bounds(rows)
        groups = [items[start:stop] for start, stop in bounds]
        score_groups = functools.partial(reward.compare, groups, [rows[start] for start, _ in bounds], built, tools)
        return _validated_scores(score_groups, len(items))
    values: list[float | None] = []
    failures: list[Failure] = []
    for index, (completion, row) in enumerate(zip(items, rows, strict=True)):
        try:
            if reward.function is not None:
                value: Any = reward.function(completion.text, row, built)
            else:
                assert reward.whole is not None  # noqa: S101  # a test checks that one of them is set
                value = reward.whole(completion, row, built)
        except Exception as error:  # one odd completion must not end a day of training: it becomes a Failure
            failures.append(failure_of(index, error))
            values.append(None)
        else:
            values.append(_validated(index, value, failures))
    return Scores(values, failures)


def failure_of(index: int, error: Exception) -> Failure:
    """Return a Failure for a reward's exception, with the traceback if that adds information."""
    if isinstance(error, Unavailable):
        return Failure(index, "unavailable", str(error)[:500])
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_LENGTH:]
    kind = "timeout" if isinstance(error, TimeoutError) else "error"
    return Failure(index, kind, f"{type(error).__name__}: {error}"[:500], text)


def all_failed(count: int, kind: str, message: str, trace: str = "") -> Scores:
    """Return the scores of a batch of `count` completions that all failed for one reason."""
    return Scores([None] * count, [Failure(index, kind, message, trace) for index in range(count)])


def _group_bounds(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return (start, stop) of each group, which consists of the adjacent completions of one row."""
    starts = [index for index, row in enumerate(rows) if index == 0 or row != rows[index - 1]]
    return list(zip(starts, [*starts[1:], len(rows)], strict=True))


def _validated_scores(compute: Callable[[], Scores], count: int) -> Scores:
    try:
        scores = compute()
    except (Unavailable, SandboxUnavailable) as error:
        return all_failed(count, "unavailable", str(error))
    except Exception as error:  # from a library or a server's odd response: a Failure, not the end of the run
        failure = failure_of(0, error)
        return all_failed(count, failure.kind, failure.message, failure.traceback)
    if len(scores.values) != count:
        received = f"{len(scores.values)} score{'' if len(scores.values) == 1 else 's'}"
        return all_failed(count, "wrong_length", f"It returned {received} for {count} completions.")
    failures = list(scores.failures)
    values = [_validated(index, value, failures) for index, value in enumerate(scores.values)]
    return Scores(values, failures, scores.notes)


def _validated(index: int, value: Any, failures: list[Failure]) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and (isinstance(value, bool) or is_finite(value)):
        return float(value)
    text = "an integer beyond the largest float" if isinstance(value, int) else repr(str(value)[:60])
    failures.append(Failure(index, "not_a_number", f"It returned {text}, which is not a finite number."))
    return None
