"""Rules for the metrics that a line can hold (others are dropped and their names reported), and names of metrics that
the trainer and the control plane share."""

import functools
import json
import sys
from collections.abc import Mapping
from typing import Any

MAX_METRICS = 2_000
"""Maximum number of metrics on one line. More are a bug in a reward function and would fill the store with names."""
MAX_NAME_LENGTH = 200
"""Maximum length of a metric's name. Longer ones are left out, since two shortened names could become the same."""
POLICY_CHANGE = "sync/policy_change"
VLLM_CHANGED = "sync/vllm_changed"
VLLM_FOLLOWED = "sync/followed"
LOGP_GAP = "sync/logp_gap"
_MAX_FLOAT = sys.float_info.max


def is_metric(name: str, value: object) -> bool:
    return len(name) <= MAX_NAME_LENGTH and is_finite(value)


def is_finite(value: object) -> bool:
    """Return whether a value is a number that JSON and every database can hold.

    It is compared with bounds, since `math.isfinite` raises for an integer with 400 digits.
    """
    if value.__class__ is float:  # nearly all are, so they take the shortest path
        return -_MAX_FLOAT <= value <= _MAX_FLOAT
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT


@functools.cache
def quoted_key(name: str) -> str:
    """Return a metric's name as a quoted JSON key, or "" if no metric can have the name."""
    return f"{json.dumps(name, ensure_ascii=False)}:" if is_metric(name, 0) else ""


def metrics_problem(kind: str, data: Mapping[str, Any]) -> str:
    """Explain why a line of this kind can't have these metrics; return "" if it can."""
    if len(data) > MAX_METRICS:
        return f"{kind} has {len(data)} metrics, more than {MAX_METRICS}"
    for name, value in data.items():
        if not is_metric(name, value):
            return f"data.{name[:MAX_NAME_LENGTH]} of {kind} is not a finite number, or its name is too long"
    return ""
