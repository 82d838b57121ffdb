"""The definition of the run page's charts: lines, bounds, texts. Data only; the browser draws them."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

COLOURS = 8


def colour(number: int) -> str:
    """Pick a palette colour by its number, from 0."""
    return f"c{number % COLOURS + 1}"


@dataclass(frozen=True)
class ChartLine:
    metric: str
    label: str
    colour: str = "c1"
    band: str = ""
    """Metric of the standard deviation, drawn as a band around the line."""
    evaluation: str = ""
    """The same figure on the held-out rows, drawn as points."""
    low: float | None = None
    high: float | None = None
    """The range of possible values, which limits the band. None: open."""
    weight: float = 1.0
    """Factor applied to the values for drawing."""


def lines_of(labels: Iterable[tuple[str, str]], names: Container[str] | None = None) -> tuple[ChartLine, ...]:
    """Make a line for each (metric, label), in the colour of its position; only for metrics among `names`, if given."""
    return tuple(
        ChartLine(metric, label, colour(i))
        for i, (metric, label) in enumerate(labels)
        if names is None or metric in names
    )


@dataclass(frozen=True)
class ChartBound:
    """A faint, labelled line: the value from which the run's health suffers."""

    value: float
    name: str
    level: str
    """warning | bad"""


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    lines: tuple[ChartLine, ...]
    format: str = "number"
    """number, percent (of a share), percent100, seconds, tokens, mib, watts, rate"""
    zero: bool = False
    """The y axis starts at 0, because 0 means something here."""
    x: str = "step"
    """step | time"""
    bounds: tuple[ChartBound, ...] = ()
    """Filled in by runs.insight.health.drawn, from the run's preset."""
    log: bool = False
    note: str = ""
    help: str = ""
    stack: bool = False
    """The lines are parts of a whole, stacked."""

    @classmethod
    def single(cls, id_: str, title: str, metric: str, label: str, colour: str, **fields: Any) -> "Chart":
        """Make a chart of one line. `fields`: further ones of the chart."""
        return cls(id_, title, (ChartLine(metric, label, colour),), **fields)


@dataclass(frozen=True)
class ChartGroup:
    title: str
    charts: tuple[Chart, ...]
    folded: bool = False
    """Folded until opened, because it has many charts of detail."""


@dataclass(frozen=True)
class Tile:
    """A figure of the headline row."""

    metric: str
    label: str
    format: str = "number"
    help: str = ""
    note: str = ""
    """Shown instead of a figure that is constant in this run."""
