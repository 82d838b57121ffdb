"""The figures of `bench page`, a function a part: what was measured, under its key, in its unit, rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks._figures import percentile

Figures = dict[str, Any]

PROMISED = (
    "figure_p95_ms",
    "drawn_p95_ms",
    "main_thread_percent",
    "chart_100k_p95_ms",
    "chart_1m_ms",
    "spikes_kept_of_20",
    "list_10k_p95_ms",
    "compare_50_s",
    "viewers_1000_p95_ms",
    "kb_per_viewer",
    "rows_lost",
)
"""What the whole benchmark always has, whatever else it tells."""


def live(
    *,
    figure_s: list[float],
    drawn_s: list[float],
    others_s: list[float],
    busy_s: float,
    took_s: float,
    charts: int,
    shown: int,
) -> Figures:
    """Seconds of each step from its line until the page has it; of the main thread, of which `busy_s` in `took_s`."""
    return {
        "figure_p50_ms": ms(figure_s, 0.5),
        "figure_p95_ms": ms(figure_s, 0.95),
        "drawn_p50_ms": ms(drawn_s, 0.5),
        "drawn_p95_ms": ms(drawn_s, 0.95),
        "others_frame_p95_ms": ms(others_s, 0.95),
        "main_thread_percent": round(100 * busy_s / took_s, 1),
        "charts_on_the_page": charts,
        "charts_on_screen": shown,
        "steps_timed": len(figure_s),
    }


def heap(half_mb: float, end_mb: float) -> Figures:
    """The page's heap once its columns are full, and an hour of steps later."""
    return {"heap_mb_half": round(half_mb, 1), "heap_mb_end": round(end_mb, 1)}


def long(name: str, *, answers_s: list[float], first_s: Sequence[float], first_charts: Any, spikes: int) -> Figures:
    """Of one stored run: the series' answers, first visits until every chart on screen was drawn, spikes on it."""
    figures = {
        f"first_charts_{name}_s": round(percentile(list(first_s), 0.5), 2),
        f"first_charts_{name}_slowest_s": round(max(first_s), 2),
        f"first_charts_{name}": first_charts,
        f"spikes_{name}": spikes,
        f"chart_{name}_p50_ms": ms(answers_s, 0.5),
        f"chart_{name}_p95_ms": ms(answers_s, 0.95),
    }
    if name == "100k":
        return figures | {"spikes_kept_of_20": spikes}
    return figures | {f"chart_{name}_ms": figures[f"chart_{name}_p50_ms"]}


def listed(*, whole_s: list[float], part_s: list[float], count: int) -> Figures:
    return {"list_10k_p95_ms": ms(whole_s, 0.95), "list_refresh_p95_ms": ms(part_s, 0.95), "listed": count}


def compared(*, server_s: float, paint_s: float, drawn_s: float, count: int) -> Figures:
    return {
        "compare_50_s": round(server_s, 2),
        "compare_first_paint_s": round(paint_s, 2),
        "compare_first_chart_s": round(drawn_s, 2),
        "compared": count,
    }


def viewers(
    count: int, seconds: float, *, seen: Mapping[str, Any], beside: Mapping[str, Any], cpu_s: float, each_bytes: float
) -> Figures:
    """`seen` and `beside`: what _viewers' `watch` says, without and with a slow one among them."""
    return {
        f"viewers_{count}_p95_ms": seen["p95_ms"],
        f"viewers_{count}_p50_ms": seen["p50_ms"],
        f"viewers_{count}_p95_ms_beside_a_slow_one": beside["p95_ms"],
        "kb_per_viewer": round(each_bytes / 1024, 1),
        "viewer_frames_per_s": round(seen["frames"] / count / seconds, 2),
        "viewers_lost": beside["lost"],
        "viewers_missed_steps": beside["missed"],
        "viewers_web_cpu_percent": round(100 * cpu_s / seconds),
    }


def crowd(
    *, lost: int, sent: int, twice: int, runs: int, metrics: int, seconds: float, found: Mapping[str, Any]
) -> Figures:
    """Rows that the runs of a crowd sent, and `found`: what it measured meanwhile."""
    return {
        "rows_lost": lost,
        "rows_sent": sent,
        "rows_twice": twice,
        "crowd_runs": runs,
        "crowd_metrics": metrics,
        "crowd_s": seconds,
        "crowd_web_cpu_percent": found["web_cpu_percent"],
        "crowd_row_p99_ms": found["row_p99_ms"],
    }


def ms(seconds: list[float], share: float) -> float:
    return round(percentile(seconds, share) * 1000, 1)
