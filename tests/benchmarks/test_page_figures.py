"""`bench page`: which figures it has, and that they are what was measured, in the unit of their name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.benchmarks import _page_figures as figures

HUNDREDTHS = [number / 100 for number in range(1, 101)]
LIVE = figures.live(figure_s=HUNDREDTHS, drawn_s=[0.9], others_s=[0.05], busy_s=3.6, took_s=60.0, charts=24, shown=6)
STORED = {"answers_s": [0.010, 0.012, 0.016], "first_s": [1.2, 1.1, 1.7], "first_charts": 6}
WATCHED = {"p50_ms": 300.0, "p95_ms": 473.0, "frames": 40_000, "lost": 0, "missed": 0}
CROWD: dict[str, Any] = {"runs": 200, "metrics": 50, "seconds": 600.0}
WHOLE = {
    **LIVE,
    **figures.heap(12.06, 12.21),
    **figures.long("100k", spikes=20, **STORED),
    **figures.long("1m", spikes=19, **STORED),
    **figures.listed(whole_s=HUNDREDTHS, part_s=[0.04], count=10_000),
    **figures.compared(server_s=0.254, paint_s=0.3, drawn_s=0.9, count=50),
    **figures.viewers(1000, 10.0, seen=WATCHED, beside=WATCHED, cpu_s=5.0, each_bytes=25_600.0),
    **figures.crowd(lost=0, sent=9, twice=0, found={"web_cpu_percent": 86, "row_p99_ms": 1450.0}, **CROWD),
}


def test_the_whole_benchmark_has_each_promised_figure(subtests: pytest.Subtests) -> None:
    for name in figures.PROMISED:
        with subtests.test(name=name):
            assert isinstance(WHOLE[name], int | float)
            assert math.isfinite(WHOLE[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("figure_p95_ms", 950.0),
        ("drawn_p95_ms", 900.0),
        ("main_thread_percent", 6.0),
        ("heap_mb_half", 12.1),
        ("chart_100k_p95_ms", 16.0),
        ("chart_1m_ms", 12.0),
        ("first_charts_1m_slowest_s", 1.7),
        ("spikes_kept_of_20", 20),
        ("list_10k_p95_ms", 950.0),
        ("compare_50_s", 0.25),
        ("viewers_1000_p95_ms", 473.0),
        ("kb_per_viewer", 25.0),
        ("viewers_web_cpu_percent", 50),
    ],
)
def test_each_figure_is_in_the_unit_of_its_name(name: str, value: float) -> None:
    assert WHOLE[name] == value
