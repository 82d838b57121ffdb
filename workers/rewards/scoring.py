"""Scores a batch of completions with one reward: the same code in the trainer and in the playground.

Whatever a reward does wrong (raises, gives another number of scores, NaN, infinity, text) is a Failure of those rows,
which then count as not applicable.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from workers.rewards.reward import Completion, Failure, Reward, Row, Scores
from workers.rewards.tools import Tools, Unavailable
from workers.sandbox import SandboxUnavailable

LONGEST_TRACEBACK = 4_000


def score(
    reward: Reward,
    completions: Sequence[Completion | str],
    rows: Sequence[Row],
    params: Mapping[str, Any],
    tools: Tools | None = None,
) -> Scores:
    """rows[i] is the dataset row that completions[i] answers. Never raises for what the reward does; `tools` are
    needed by rewards that are not Cost.PURE."""
    built = reward.build(params)
    given = [Completion(one) if isinstance(one, str) else one for one in completions]
    if reward.batch is not None:
        if tools is None:
            return all_failed(len(given), "unavailable", f"{reward.title} can't be scored here.")
        return _whole_batch(reward, given, rows, built, tools)
    values: list[float | None] = []
    failures: list[Failure] = []
    for index, (completion, row) in enumerate(zip(given, rows, strict=True)):
        try:
            if reward.function is not None:
                value: Any = reward.function(completion.text, row, built)
            else:
                assert reward.whole is not None  # noqa: S101  a test holds that one of them is set
                value = reward.whole(completion, row, built)
        except Exception as error:  # one odd completion must not end a day of training: it is told and counted
            failures.append(failed(index, error))
            values.append(None)
        else:
            values.append(_checked(index, value, failures))
    return Scores(values, failures)


def failed(index: int, error: Exception) -> Failure:
    """What an exception of a reward says, with its traceback where that says more."""
    if isinstance(error, Unavailable):
        return Failure(index, "unavailable", str(error)[:500])
    text = "".join(traceback.format_exception(error))[-LONGEST_TRACEBACK:]
    kind = "timeout" if isinstance(error, TimeoutError) else "error"
    return Failure(index, kind, f"{type(error).__name__}: {error}"[:500], text)


def all_failed(count: int, kind: str, message: str, trace: str = "") -> Scores:
    """A batch of which nothing could be scored, for one reason."""
    return Scores([None] * count, [Failure(index, kind, message, trace) for index in range(count)])


def _whole_batch(
    reward: Reward, completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools
) -> Scores:
    assert reward.batch is not None  # noqa: S101  asked by the caller
    try:
        given = reward.batch(completions, rows, params, tools)
    except (Unavailable, SandboxUnavailable) as error:
        return all_failed(len(completions), "unavailable", str(error))
    except Exception as error:  # of a library or a server's odd answer: told and counted, not the end of the training
        told = failed(0, error)
        return all_failed(len(completions), told.kind, told.message, told.traceback)
    if len(given.values) != len(completions):
        words = f"It gave {len(given.values)} scores for {len(completions)} completions."
        return all_failed(len(completions), "wrong_length", words)
    failures = list(given.failures)
    values = [_checked(index, value, failures) for index, value in enumerate(given.values)]
    return Scores(values, failures, given.notes)


def _checked(index: int, value: Any, failures: list[Failure]) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    failures.append(Failure(index, "not_a_number", f"It gave {str(value)[:60]!r}, which is no finite number."))
    return None
