"""The definition of a rule, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runs.insight.health.config import Config

Level = Literal["note", "warning", "bad"]

ATROPOS = "Atropos example trainer"
AXOLOTL = "Axolotl’s guide to training stability"
OWN = "our own"

DIVERGENCE = ("not_finite", "stale", "ratio", "clip", "grad_high", "grad_spikes", "loss", "kl", "entropy_rise")
"""Rules of updates that lead away, of which anything may come."""
DECAY = ("gibberish", "repetition", "empty", "length_collapse", "truncation")
"""Rules of completions that no reward can be right about."""


@dataclass(frozen=True, kw_only=True)
class HealthRule:
    id: str
    title: str
    about: str
    """What the figure measures, for people who set its bounds."""
    mild: Level = "warning"
    above: bool = True
    """Whether values above the bounds are bad; otherwise values below."""
    warning: float | None = None
    bad: float | None = None
    """None: no bound. A rule with neither bound is off unless a preset sets one."""
    hold: int = 10
    """Steps for which a condition must last before a finding opens."""
    calm: int = 30
    """Steps for which it must be over before the finding closes, if that is longer."""
    scale: Callable[[Config], float] = lambda config: 1.0
    """Factor of the bounds for a run."""
    format: str = "number"
    """number, percent (of a share), percent100, times, steps, count"""
    least: float = 0.0
    most: float | None = None
    """The range of valid bounds."""
    source: str
    means: str
    """The finding's sentence, with {value}, {bound} and the signal's own words filled in."""
    try_: str
    solved: str = ""
    """The sentence used when the reward is near its maximum: the finding is then a note."""
    metric: str = ""
    """The chart that shows it."""
    also: str = ""
    """The same metric's name with other losses."""
    field: str = ""
    """The field of the New run form that the advice is about."""
    read: bool = False
    """The advice is to read completions."""
    logs: bool = False
    """The advice is to read logs."""
    find: str = ""
    """The advice is to read these completions: a query of their tab, with the signal's own words filled in."""
    drawn: bool = False
    """Draw the bounds on the chart: the figure is the metric's own value, averaged over any number of steps."""
    around: float | None = None
    """The figure is the metric's distance from this value, so a bound lies on both sides."""
    follows: tuple[str, ...] = ()
    """Rules of what may cause this: while one of them has a finding, this is its consequence."""
    unless: Callable[[Config], str] = lambda config: ""
    """Why the rule doesn't apply to the run; empty: it does."""
