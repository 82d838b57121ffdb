"""What a metric is, for whoever writes, reads or stores one: a name that is not too long, and a finite number."""

from __future__ import annotations

import sys

LONGEST_NAME = 200
"""A longer name is left out. Cut off, two of them could become one."""
_MOST = sys.float_info.max


def is_finite(value: object) -> bool:
    """Whether it is a number that JSON and every database can hold.

    Compared, not asked of `math.isfinite`: that raises for a whole number of 400 digits.
    """
    if value.__class__ is float:  # nearly all are: the short way, twenty times a line
        return -_MOST <= value <= _MOST
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def is_metric(name: str, value: object) -> bool:
    return len(name) <= LONGEST_NAME and is_finite(value)
