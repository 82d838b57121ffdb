"""Rows that a benchmark needs in great number, put straight into the store of a stack: long runs, many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.stack import Stack

SPIKES = 20
LONG = """
import numpy as np
from runs.insight.metrics import folding
from runs.engine.models import Attempt, Run
from tests.benchmarks import _stored_rows
result = _stored_rows.long_run(page, name=name, steps=steps, metrics=metrics, spikes=spikes)
"""
MANY = """
from tests.benchmarks import _stored_rows
_stored_rows.many_runs(page, count)
"""


def long_run(
    stack: Stack, page: dict[str, Any], *, name: str, steps: int, metrics: Sequence[str], spikes: Sequence[int] = ()
) -> str:
    """Id of a finished run with `steps` points of each metric; at the steps of `spikes` the reward jumps for one."""
    run: str = stack.django(LONG, page=page, name=name, steps=steps, metrics=list(metrics), spikes=list(spikes))
    return run


def many_runs(stack: Stack, page: dict[str, Any], count: int) -> None:
    """Runs of all ends, ages and tags, each with its trend."""
    stack.django(MANY, page=page, count=count)
