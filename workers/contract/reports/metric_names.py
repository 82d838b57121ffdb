"""Metrics that a line can hold, by name and value; the others are dropped and named."""

import functools
import json
import sys
from collections.abc import Mapping
from typing import Any

MAX_METRICS = 2_000
"""Most metrics on one line. More are a bug in a reward function, and would fill the store with names."""
LONGEST_NAME = 200
"""Most characters of a metric's name. A longer one is left out, since two shortened names could become one."""
_MAX_FLOAT = sys.float_info.max


def is_metric(name: str, value: object) -> bool:
    return len(name) <= LONGEST_NAME and is_finite(value)


def is_finite(value: object) -> bool:
    """Return True for a number that JSON and every database can hold.

    Compared, since `math.isfinite` raises for a whole number of 400 digits.
    """
    if value.__class__ is float:  # nearly all are: the short way, twenty times a line
        return -_MAX_FLOAT <= value <= _MAX_FLOAT
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT


@functools.cache
def quoted_key(name: str) -> str:
    """Quote the metric's name as a key of JSON; "" if no metric can have it."""
    return f"{json.dumps(name, ensure_ascii=False)}:" if is_metric(name, 0) else ""


def metrics_problem(kind: str, data: Mapping[str, Any]) -> str:
    """Explain why a line of this kind can't have these metrics; "" if it can."""
    if len(data) > MAX_METRICS:
        return f"{kind} has {len(data)} metrics, more than {MAX_METRICS}"
    for name, value in data.items():
        if not is_metric(name, value):
            return f"data.{name[:LONGEST_NAME]} of {kind} is not a finite number, or its name is too long"
    return ""
