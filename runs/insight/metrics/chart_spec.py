"""Data structures that define the run page's charts, which the browser draws."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

COLOURS = 8


def colour(number: int) -> str:
    return f"c{number % COLOURS + 1}"


@dataclass(frozen=True)
class ChartLine:
    metric: str
    label: str
    colour: str = "c1"
    band: str = ""
    """Metric of the standard deviation, drawn as a band around the line."""
    evaluation: str = ""
    """Name of the same metric on held-out rows, drawn as points."""
    low: float | None = None
    high: float | None = None
    """Upper end of the range of possible values, which limits the band and starts at `low`; None if open."""
    weight: float = 1.0


def lines_of(labels: Iterable[tuple[str, str]], names: Container[str] | None = None) -> tuple[ChartLine, ...]:
    """Return a line for each (metric, label), coloured by position. If `names` is given, skip other metrics."""
    return tuple(
        ChartLine(metric, label, colour(i))
        for i, (metric, label) in enumerate(labels)
        if names is None or metric in names
    )


@dataclass(frozen=True)
class ChartBound:
    """A bound of a health rule, drawn as a faint line with a label."""

    value: float
    name: str
    level: str


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    lines: tuple[ChartLine, ...]
    format: str = "number"
    """Format of values: number, percent (of a share), percent100, seconds, tokens, mib, watts or rate."""
    zero: bool = False
    """True if the y axis starts at 0, because 0 is meaningful for these metrics."""
    x: str = "step"
    """Unit of the x axis: step or time."""
    bounds: tuple[ChartBound, ...] = ()
    log: bool = False
    note: str = ""
    help: str = ""
    stack: bool = False

    @classmethod
    def single(cls, id_: str, title: str, metric: str, label: str, colour: str, **fields: Any) -> "Chart":
        return cls(id_, title, (ChartLine(metric, label, colour),), **fields)


@dataclass(frozen=True)
class ChartGroup:
    title: str
    charts: tuple[Chart, ...]
    folded: bool = False


@dataclass(frozen=True)
class Tile:
    metric: str
    label: str
    format: str = "number"
    help: str = ""
    note: str = ""
