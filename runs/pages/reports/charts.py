"""A run's charts, and overlaid charts of several runs, as pictures with the pages' lines, colours, scales and
smoothing."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from runs.insight.comparing.comparison import ComparedMetric, Look
from runs.insight.comparing.curves import Curve as ComparedCurve
from runs.insight.metrics.chart_spec import COLOURS, Chart, ChartLine
from runs.insight.metrics.run_charts import COUNTER_OF_RATE
from runs.insight.metrics.series import Series
from runs.pages.reports.pictures import DASHES, Picture, Points, ReportCurve

SMOOTHING = 0.6
"""Default weight of the smoothing, as on the pages."""
GRID = 200
"""Number of points on the x axis at which several runs' curves are averaged."""
X_TITLES = {"step": "Step", "tokens": "Tokens", "time": "Running time, s", "hours": "GPU-hours"}
Curves = Mapping[str, ComparedCurve]
EMPTY: Series = {"seq": [], "step": [], "t": [], "value": []}


@dataclass(frozen=True)
class Numbers:
    series: Mapping[str, Series]
    starts: Sequence[float]
    """Times at which each attempt's training started, in Unix seconds."""

    def get(self, metric: str) -> Series:
        points = self.series.get(COUNTER_OF_RATE.get(metric, metric), EMPTY)
        return _rate(points, self.starts) if metric in COUNTER_OF_RATE else points

    @property
    def began(self) -> float:
        return min((points["t"][0] for points in self.series.values() if points["t"]), default=0.0)


def picture(chart: Chart, numbers: Numbers, smoothing: float) -> Picture | None:
    lines = [(line, values) for line in chart.lines if (values := numbers.get(line.metric))["value"]]
    if not lines:
        return None
    scale, suffix = _scale(chart.format, max(max(values["value"]) * line.weight for line, values in lines))
    is_stacked = chart.stack and not chart.log
    all_xs = sorted({x for _, values in lines for x in _positions(values, chart.x, numbers.began)})
    floor_ys = [0.0] * len(all_xs)
    curves: list[ReportCurve] = []
    for number, (line, values) in enumerate(lines):
        xs, factor = _positions(values, chart.x, numbers.began), scale * line.weight
        raw_values = [value * factor for value in values["value"]]
        if is_stacked:  # lines are downsampled separately, so interpolate all of them at every point
            xs, raw_values = all_xs, between(xs, raw_values, all_xs)
        ys = smooth(raw_values, smoothing)
        low = high = Points()
        if len(lines) == 1 and line.band and not chart.log:
            low, high = _band(line, values, list(zip(xs, ys, strict=True)), numbers, factor, smoothing)
        if is_stacked:
            ys = floor_ys = [y + floor for y, floor in zip(ys, floor_ys, strict=True)]
        raw_points = list(zip(xs, raw_values, strict=True)) if smoothing and not is_stacked else []
        colour, dash = line.colour, "solid"
        if len(lines) > COLOURS:  # dashes distinguish lines of the same colour
            colour, dash = f"c{number % COLOURS + 1}", list(DASHES)[number // COLOURS % len(DASHES)]
        points = list(zip(xs, ys, strict=True))
        curves.append(ReportCurve(line.label, colour, points, raw_points, low, high, dash, filled=is_stacked))
    for line, _ in lines:
        evaluation = numbers.get(line.evaluation) if line.evaluation else EMPTY
        held_out = zip(_positions(evaluation, chart.x, numbers.began), evaluation["value"], strict=True)
        points = [(x, value * scale * line.weight) for x, value in held_out]
        curves.append(ReportCurve(f"{line.label}, evaluation", line.colour, points, dotted=True))
    bounds = [replace(bound, value=bound.value * scale) for bound in chart.bounds]
    x_title = "Seconds since the start" if chart.x == "time" else "Step"
    return Picture(chart.title, curves, x_title, suffix, chart.zero, chart.log, bounds)


def overlay(
    metric: ComparedMetric,
    curves: Curves,
    names: Mapping[str, str],
    looks: Mapping[str, Look],
    x: str,
    smoothing: float,
) -> Picture | None:
    """Return a picture of one metric of several runs, or None if no run has it."""
    recorded_curves = {run: curve for run, curve in curves.items() if curve["y"]}
    if not recorded_curves:
        return None
    scale, suffix = _scale(metric.format, max(max(curve["y"]) for curve in recorded_curves.values()))
    report_curves = []
    for run, curve in recorded_curves.items():
        raw_values = [value * scale for value in curve["y"]]
        points = list(zip(curve["x"], smooth(raw_values, smoothing), strict=True))
        raw_points = list(zip(curve["x"], raw_values, strict=True))
        report_curves.append(ReportCurve(names[run], looks[run].colour, points, raw_points, dash=looks[run].dash))
    return Picture(metric.title, report_curves, X_TITLES[x], suffix)


def spread(
    metric: ComparedMetric, curves: Curves, groups: Sequence[tuple[str, Sequence[str]]], x: str, smoothing: float
) -> Picture | None:
    """Return a picture of the mean ± one standard deviation of each group of several curves, over the range that all of
    them cover, or None without such groups. `groups` are pairs of (label, run ids)."""
    scale, suffix = _scale(metric.format, max((y for curve in curves.values() for y in curve["y"]), default=0.0))
    report_curves = []
    for number, (label, runs) in enumerate(groups):
        group_curves = [curves[run] for run in runs if run in curves and curves[run]["y"]]
        start = max((curve["x"][0] for curve in group_curves), default=0.0)
        end = min((curve["x"][-1] for curve in group_curves), default=-1.0)
        if len(group_curves) < 2 or start > end:
            continue
        xs = [start + (end - start) * n / (GRID - 1) for n in range(GRID)]
        columns = zip(*(between(curve["x"], smooth(curve["y"], smoothing), xs) for curve in group_curves), strict=True)
        means = [(fmean(column) * scale, stdev(column) * scale) for column in columns]
        points, low, high = (
            [(x_value, mean + sign * deviation) for x_value, (mean, deviation) in zip(xs, means, strict=True)]
            for sign in (0, -1, 1)
        )
        report_curves.append(ReportCurve(label, f"c{number % COLOURS + 1}", points, [], low, high))
    return (
        Picture(f"{metric.title}: mean ± standard deviation", report_curves, X_TITLES[x], suffix)
        if report_curves
        else None
    )


def between(xs: Sequence[float], ys: Sequence[float], positions: Sequence[float]) -> list[float]:
    """Return values interpolated linearly at other positions, constant before the first and after the last."""
    interpolated = []
    for x in positions:
        index = bisect_left(xs, x)
        if index in (0, len(xs)):
            interpolated.append(ys[min(index, len(xs) - 1)])
            continue
        x0, x1 = xs[index - 1], xs[index]
        interpolated.append(ys[index - 1] + (x - x0) / (x1 - x0) * (ys[index] - ys[index - 1]))
    return interpolated


def smooth(values: Sequence[float], weight: float) -> list[float]:
    """Return the charts' exponential moving average (static/js/metrics/series.js), unbiased at its start."""
    mean = norm = 0.0
    smoothed = []
    for value in values:
        norm = norm * weight + (1 - weight)
        share = (1 - weight) / norm
        if value != mean:
            mean = mean * (1 - share) + value * share
        smoothed.append(mean)
    return smoothed


def _band(
    line: ChartLine, values: Series, centre: Points, numbers: Numbers, factor: float, smoothing: float
) -> tuple[Points, Points]:
    """Return the edges of mean ± one standard deviation, clipped to the possible values."""
    deviation = numbers.get(line.band)
    if not deviation["value"]:
        return [], []
    raw_values = between(deviation["seq"], deviation["value"], values["seq"])
    half_widths = smooth([abs(value * factor) for value in raw_values], smoothing)
    minimum = -math.inf if line.low is None else line.low * factor
    maximum = math.inf if line.high is None else line.high * factor
    # The declared range may be wrong, so the band always includes the line.
    low = [(x, max(y - d, min(y, minimum))) for (x, y), d in zip(centre, half_widths, strict=True)]
    high = [(x, min(y + d, max(y, maximum))) for (x, y), d in zip(centre, half_widths, strict=True)]
    return low, high


def _positions(values: Series, x: str, began: float) -> list[float]:
    if x == "time" or None in values["step"]:
        return [t - began for t in values["t"]]
    return [float(step or 0) for step in values["step"]]


def _rate(total: Series, starts: Sequence[float]) -> Series:
    """Return the tokens per second between neighbouring points, except across a restart."""
    rate: Series = {"seq": [], "step": [], "t": [], "value": []}
    for i in range(1, len(total["value"])):
        t_before, t_now = total["t"][i - 1], total["t"][i]
        tokens = total["value"][i] - total["value"][i - 1]
        if t_now <= t_before or tokens < 0 or any(t_before < start <= t_now for start in starts):
            continue
        rate["seq"].append(total["seq"][i])
        rate["step"].append(total["step"][i])
        rate["t"].append(t_now)
        rate["value"].append(tokens / (t_now - t_before))
    return rate


def _scale(form: str, highest: float) -> tuple[float, str]:
    """Return the factor and the unit of a chart's values, as in static/js/metrics/plotly_figure.js."""
    if form == "mib":
        return (1 / 1024, " GiB") if highest >= 2048 else (1.0, " MiB")
    units = {"percent": (100.0, "%"), "percent100": (1.0, "%"), "seconds": (1.0, " s"), "watts": (1.0, " W")}
    return units.get(form, (1.0, ""))
