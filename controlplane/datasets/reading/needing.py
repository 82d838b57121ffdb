"""Tests that no reward can judge, as problems of their row: the code that they test runs in a process of its own."""

from __future__ import annotations

from controlplane.datasets.reading.problems import EXCERPT, Problem, visible
from workers.sandbox.needs import doubts as doubts_of
from workers.sandbox.needs import problems as needs_of


def problem(test: str, number: int, line: int, column: str) -> Problem | None:
    """Of the row's test with this number (from 1); None: it can be judged, or is too long or too deep to be read."""
    if needs := needs_of(test):
        kind, said = "test_needs", f"Test {number} in “{column}” never counts as passed. {needs}"
    elif doubts := doubts_of(test):
        kind, said = "test_doubts", f"Test {number} in “{column}”: {doubts}"
    else:
        return None
    return Problem(line, kind, visible(said), visible(test[:EXCERPT]), field=visible(column))
