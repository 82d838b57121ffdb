"""Hostile texts: no regular expression of the product takes a time that grows with the square of a text's length."""

from __future__ import annotations

import re

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.architecture.patterns import growth, patterns

SQUARE = 9
"""Between 4, the ratio of a linear pattern, and 16, that of a quadratic one."""


def test_no_pattern_is_slow_on_a_long_text() -> None:
    slow = []
    for place, pattern, uses in patterns(ROOT):
        ratio, text = growth(pattern, uses)
        # Measured again, since the machine may have been busy.
        if ratio > SQUARE and growth(pattern, uses)[0] > SQUARE:
            slow.append(f"{place}: {pattern.pattern!r} with many {text!r}")
    assert slow == []


@pytest.mark.parametrize("pattern", [r"^\s*def\s", r"\d+/\d+"])
def test_a_slow_pattern_is_noticed(pattern: str) -> None:
    assert growth(re.compile(pattern, re.MULTILINE), {"search"})[0] > SQUARE


def test_the_patterns_are_found() -> None:
    assert len(list(patterns(ROOT))) > 150
