"""What a chart of the run page is: lines, bounds, words. Data alone; the browser draws what it says."""

from __future__ import annotations

from dataclasses import dataclass

COLOURS = 8


def colour(number: int) -> str:
    """One of the palette's, by a number from 0."""
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
    weight: float = 1.0
    """What its values are multiplied by before they are drawn."""


@dataclass(frozen=True)
class ChartBound:
    """A faint line with a name: from where on the run's health is not well."""

    value: float
    name: str
    level: str
    """watch | bad"""


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
    """Laid over a plan by runs.health.drawn: the run's preset has them."""
    log: bool = False
    note: str = ""
    help: str = ""
    stack: bool = False
    """The lines are parts of one whole and lie on each other."""


@dataclass(frozen=True)
class ChartGroup:
    title: str
    charts: tuple[Chart, ...]
    folded: bool = False
    """Closed until somebody opens it: detail that would push the rest off the page."""


@dataclass(frozen=True)
class Tile:
    """One figure of the headline row."""

    metric: str
    label: str
    format: str = "number"
    help: str = ""
    note: str = ""
    """Said instead of a figure that can't move in this run."""
