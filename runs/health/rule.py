"""What one rule is, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runs.health.config import Config

Level = Literal["note", "watch", "bad"]

ATROPOS = "Atropos example trainer"
AXOLOTL = "Axolotl’s guide to training stability"
OWN = "our own"


@dataclass(frozen=True, kw_only=True)
class HealthRule:
    id: str
    title: str
    about: str
    """What the figure is, for whoever sets its bounds."""
    mild: Level = "watch"
    above: bool = True
    """Which side of the bounds is the sick one."""
    watch: float | None = None
    bad: float | None = None
    """None: this bound is not set; a rule with neither is off unless a preset sets one."""
    hold: int = 10
    """A finding opens when its condition has lasted for so many steps, and closes likewise."""
    clock: bool = False
    """`hold` counts seconds, not steps."""
    format: str = "number"
    """number, percent (of a share), percent100, times, steps, count"""
    least: float = 0.0
    most: float | None = None
    """What a bound may be."""
    source: str
    means: str
    """The sentence of a finding; {value}, {bound} and the signal's own words are laid in."""
    try_: str
    solved: str = ""
    """Said instead where the reward is near its highest: then the finding is a note."""
    metric: str = ""
    """The chart that shows it."""
    also: str = ""
    """What the same metric is called with another loss."""
    drawn: bool = False
    """Its bounds are lines on that chart: the figure is the metric's own value, of however many steps."""
    around: float | None = None
    """The figure is how far the metric is from here: a bound lies on both sides of it."""
    unless: Callable[[Config], str] = lambda config: ""
    """Why the rule says nothing of such a run; empty: it does."""
