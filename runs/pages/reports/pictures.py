"""Charts as SVG pictures that look like the pages' charts in the light theme.

They are drawn here because Plotly draws only in a browser, and matplotlib would add numpy, Pillow and its fonts to the
web image.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from controlplane.platform.templatetags.figures import si, significant
from runs.insight.metrics.chart_spec import ChartBound

COLOURS = {
    "c1": "#0072b2", "c2": "#d98e00", "c3": "#009e73", "c4": "#c05f96",
    "c5": "#3d9fd6", "c6": "#d55e00", "c7": "#a89a00", "c8": "#555b62",
    "ink-1": "#1a1c1f", "ink-3": "#5f656d", "line": "#e1e2de", "line-strong": "#c3c6c1", "surface-1": "#ffffff",
}  # fmt: skip
DASHES = {"solid": "", "dash": "6 4", "dot": "2 3"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
WIDTH, HEIGHT = 720, 300
LEFT_MARGIN, RIGHT_MARGIN, TOP_MARGIN, BOTTOM_MARGIN = 58, 16, 40, 38
MAX_LABELLED = 4
"""Maximum number of lines that are labelled at their ends; more lines get a legend."""
LABEL_ROOM, LABEL_LETTERS, LABEL_HEIGHT = 124, 19, 13
LEGEND_ROW, LEGEND_LETTERS = 18, 46
LETTER = 6.4
PADDING = 0.06
"""Space above and below the lines, as a share of their height."""
MIN_AXIS_DISTANCE = 0.02
"""Share of the height within which a bound is too close to the axis to be drawn."""
TICKS = 6

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class ReportCurve:
    label: str
    colour: str
    points: Points
    raw: Points = ()  # type: ignore[assignment]
    """Unsmoothed points, drawn faintly behind the curve."""
    low: Points = ()  # type: ignore[assignment]
    high: Points = ()  # type: ignore[assignment]
    dash: str = "solid"
    dotted: bool = False
    filled: bool = False
    """True if the area down to the previous curve is filled, for parts of a whole."""


@dataclass(frozen=True)
class Picture:
    title: str
    curves: Sequence[ReportCurve]
    x_title: str = "Step"
    suffix: str = ""
    zero: bool = False
    log: bool = False
    bounds: Sequence[ChartBound] = ()


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        value = math.log10(value) if self.log else value
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [10.0**power for power in powers][:: max(1, len(powers) // TICKS)]
        step = _round_up((self.high - self.low) / TICKS)
        first_step = math.ceil(self.low / step - 1e-9)
        return [round(step * n, 12) for n in range(first_step, math.floor(self.high / step + 1e-9) + 1)]


def svg(picture: Picture) -> str:
    """Return the picture as an SVG document, without curves that have no points."""
    curves = [_positive(curve) if picture.log else curve for curve in picture.curves]
    curves = [curve for curve in curves if curve.points]
    labels = 1 < len(curves) <= MAX_LABELLED
    legend = _legend(curves) if len(curves) > MAX_LABELLED else []
    right_edge = WIDTH - (LABEL_ROOM if labels else RIGHT_MARGIN)
    height = HEIGHT + LEGEND_ROW * len(legend)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="{FONT}" font-size="11" role="img"><title>{_escaped(picture.title)}</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="{COLOURS["surface-1"]}"/>',
        _label(LEFT_MARGIN - 46, 22, picture.title, "ink-1", size=14, weight=600, letters=90),
    ]
    if curves:
        x, y = _x_axis(curves, right_edge), _y_axis(picture, curves)
        parts += [*_grid(picture, x, y), *_lines(curves, x, y), *(_end_labels(curves, right_edge, y) if labels else ())]
        parts += [part for row, names in enumerate(legend) for part in _legend_row(row, names)]
    else:
        parts.append(_label(WIDTH / 2, HEIGHT / 2, "No values were recorded", "ink-3", anchor="middle"))
    return "".join([*parts, "</svg>"])


# --- axes ------------------------------------------------------------------------------------------------------


def _x_axis(curves: Sequence[ReportCurve], right_margin: float) -> _Axis:
    xs = [x for curve in curves for x, _ in (curve.points[0], curve.points[-1])]
    low, high = min(xs), max(xs)
    return (
        _Axis(low - 0.5, high + 0.5, LEFT_MARGIN, right_margin)
        if low == high
        else _Axis(low, high, LEFT_MARGIN, right_margin)
    )


def _y_axis(picture: Picture, curves: Sequence[ReportCurve]) -> _Axis:
    drawn_points = (points for curve in curves for points in (curve.points, curve.raw, curve.low, curve.high))
    ys = [math.log10(y) if picture.log else y for points in drawn_points for _, y in points if y > 0 or not picture.log]
    limit = 307.0 if picture.log else 1e300
    low, high = max(min(ys), -limit), min(max(ys), limit)
    if picture.zero and not picture.log:
        low, high = min(0.0, low), max(0.0, high)
    room = (high - low or abs(high) or 1.0) * PADDING
    low, high = (low if picture.zero and low == 0 and not picture.log else low - room), high + room
    low, high = (max(low, -limit), min(high, limit)) if picture.log else (low, high)
    return _Axis(low, high, HEIGHT - BOTTOM_MARGIN, TOP_MARGIN, picture.log)


def _grid(picture: Picture, x: _Axis, y: _Axis) -> Iterator[str]:
    for tick in y.ticks():
        yield _rule(x, y.at(tick), "line")
        yield _label(LEFT_MARGIN - 6, y.at(tick) + 4, _number_text(tick) + picture.suffix, "ink-3", anchor="end")
    for tick in x.ticks():
        yield _label(x.at(tick), HEIGHT - BOTTOM_MARGIN + 15, _number_text(tick), "ink-3", anchor="middle")
    yield _rule(x, y.start, "line-strong")
    yield _label((LEFT_MARGIN + x.end) / 2, HEIGHT - 8, picture.x_title, "ink-3", anchor="middle")
    for bound in picture.bounds:
        if bound.value <= 0 and y.log:
            continue
        height = (y.start - y.at(bound.value)) / (y.start - y.end)
        if MIN_AXIS_DISTANCE <= height <= 1:
            yield _rule(x, y.at(bound.value), "line-strong", dash=DASHES["dot"])
            # The worse bound is labelled at the other end, so that the labels don't overlap.
            anchor, label_x = ("end", x.end - 4) if bound.level == "bad" else ("start", LEFT_MARGIN + 4)
            yield _label(label_x, y.at(bound.value) - 3, bound.name, "ink-3", anchor=anchor, letters=60)


def _round_up(step: float) -> float:
    """Round a step up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 and math.isfinite(step) else 1.0
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * 0.999)


def _number_text(value: float) -> str:
    if abs(value) >= 10_000:
        return si(value)
    digits = significant(value, 4)
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


# --- lines -----------------------------------------------------------------------------------------------------


def _lines(curves: Sequence[ReportCurve], x: _Axis, y: _Axis) -> Iterator[str]:
    lower_points: Points = []
    for curve in curves:
        colour = COLOURS[curve.colour]
        if curve.low and curve.high:
            yield _area(curve.high, curve.low, x, y, colour, 0.12)
        if curve.filled:
            floor = lower_points or [(x_value, 0.0) for x_value, _ in curve.points]
            yield _area(curve.points, floor, x, y, colour, 0.3)
            lower_points = curve.points
        if len(curve.raw) > 2 and len(curves) <= MAX_LABELLED:
            yield _path(curve.raw, x, y, colour, 'stroke-width="1" stroke-opacity="0.25"')
        dash = f' stroke-dasharray="{dashes}"' if (dashes := DASHES["dot" if curve.dotted else curve.dash]) else ""
        if len(curve.points) > 1:
            yield _path(curve.points, x, y, colour, f'stroke-width="{1 if curve.dotted else 1.5}"{dash}')
        if curve.dotted or len(curve.points) == 1:
            ground = COLOURS["surface-1"] if curve.dotted else colour
            for x_value, value in curve.points:
                centre = f'cx="{x.at(x_value):.1f}" cy="{y.at(value):.1f}"'
                yield f'<circle {centre} r="3" fill="{ground}" stroke="{colour}" stroke-width="1.5"/>'


def _path(points: Points, x: _Axis, y: _Axis, colour: str, style: str) -> str:
    return f'<path d="M{_coordinates(points, x, y)}" fill="none" stroke="{colour}" stroke-linejoin="round" {style}/>'


def _area(top: Points, bottom: Points, x: _Axis, y: _Axis, colour: str, opacity: float) -> str:
    outline = f"M{_coordinates(top, x, y)}L{_coordinates(bottom[::-1], x, y)}Z"
    return f'<path d="{outline}" fill="{colour}" fill-opacity="{opacity}"/>'


def _coordinates(points: Points, x: _Axis, y: _Axis) -> str:
    return "L".join(f"{x.at(x_value):.1f} {y.at(value):.1f}" for x_value, value in points)


def _positive(curve: ReportCurve) -> ReportCurve:
    """Return the curve without its band and without values that a logarithmic axis can't show."""
    points, raw = ([(x, y) for x, y in part if y > 0] for part in (curve.points, curve.raw))
    return ReportCurve(curve.label, curve.colour, points, raw, dash=curve.dash)


# --- names -----------------------------------------------------------------------------------------------------


def _end_labels(curves: Sequence[ReportCurve], right_margin: float, y: _Axis) -> Iterator[str]:
    """Yield labels at the lines' ends, pushed apart where they are close together."""
    line_ends = sorted(((y.at(curve.points[-1][1]), curve) for curve in curves), key=lambda end: -end[0])
    height = math.inf
    for natural, curve in line_ends:
        height = min(natural, height - LABEL_HEIGHT)
        yield _label(right_margin + 6, max(height, TOP_MARGIN) + 4, curve.label, curve.colour, letters=LABEL_LETTERS)


def _legend(curves: Sequence[ReportCurve]) -> list[list[ReportCurve]]:
    rows: list[list[ReportCurve]] = [[]]
    used_width = 0.0
    for curve in curves:
        width = 34 + LETTER * min(len(curve.label), LEGEND_LETTERS)
        if rows[-1] and used_width + width > WIDTH - 2 * RIGHT_MARGIN:
            rows.append([])
            used_width = 0.0
        rows[-1].append(curve)
        used_width += width
    return rows


def _legend_row(row: int, curves: Sequence[ReportCurve]) -> Iterator[str]:
    x, y = float(RIGHT_MARGIN), HEIGHT + LEGEND_ROW * row + 8
    for curve in curves:
        dash = f' stroke-dasharray="{DASHES[curve.dash]}"' if DASHES[curve.dash] else ""
        yield f'<path d="M{x:.0f} {y}h18" stroke="{COLOURS[curve.colour]}" stroke-width="2"{dash}/>'
        yield _label(x + 23, y + 4, curve.label, "ink-1", letters=LEGEND_LETTERS)
        x += 34 + LETTER * min(len(curve.label), LEGEND_LETTERS)


# --- elements --------------------------------------------------------------------------------------------------


def _label(
    x: float, y: float, text: str, colour: str, *, anchor: str = "start", size: int = 11, weight: int = 400,
    letters: int = 200,
) -> str:  # fmt: skip
    head = letters // 2
    short_text = (
        text if len(text) <= letters else f"{text[: letters - head - 1]}…{text[-head:]}"
    )  # names differ at their ends
    style = f'fill="{COLOURS[colour]}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{_escaped(short_text)}</text>'


def _rule(x: _Axis, height: float, colour: str, *, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{x.start:.1f} {height:.1f}L{x.end:.1f} {height:.1f}" stroke="{COLOURS[colour]}"{dashes}/>'


def _escaped(text: str) -> str:
    return escape("".join(letter if letter.isprintable() else " " for letter in text))
