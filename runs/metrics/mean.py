"""The mean of any finite numbers: of the largest there are, too, whose sum no float holds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import fmean

_LARGEST = sys.float_info.max


def mean(values: Sequence[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:
        half = sum(value / 2 / len(values) for value in values)
        return max(-_LARGEST, min(_LARGEST, 2 * half))
