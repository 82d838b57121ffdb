"""The definition of a health rule, as data."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from runs.insight.health.config import Config

Level = Literal["note", "warning", "bad"]

ATROPOS = "Atropos example trainer"
AXOLOTL = "Axolotl’s guide to training stability"
OWN = "our own"

DIVERGENCE = ("not_finite", "stale", "ratio", "clip", "grad_high", "grad_spikes", "loss", "kl", "entropy_rise")
"""Rules about diverging updates, which may cause any other finding."""
DECAY = ("gibberish", "repetition", "empty", "length_collapse", "truncation")
"""Rules about degenerate completions, for which no reward is meaningful."""


@dataclass(frozen=True, kw_only=True)
class HealthRule:
    id: str = ""
    """Its key in the table of rules."""
    title: str
    about: str
    """The definition of the figure, for people who set its bounds."""
    mild: Level = "warning"
    above: bool = True
    """True if values above the bounds are bad, False if values below are."""
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
    minimum: float = 0.0
    maximum: float | None = None
    """The range of valid bounds."""
    source: str = f"The thresholds are {OWN}."
    means: str
    """The finding's sentence, with placeholders for {value}, {bound} and the signal's own fields."""
    try_: str
    """The advice, with the same placeholders."""
    solved: str = ""
    """The sentence for a reward near its maximum, which makes the finding a note."""
    metric: str = ""
    """The metric whose chart shows the figure."""
    also: str = ""
    """The metric's name with other losses."""
    field: str = ""
    """The field of the New run form that the advice is about."""
    read: bool = False
    """The advice is to read completions."""
    logs: bool = False
    """The advice is to read logs."""
    find: str = ""
    """The completions to read, as a query of their tab, with placeholders for the signal's own fields."""
    drawn: bool = False
    """Draw the bounds on the chart: the figure is the metric's own value, averaged over any number of steps."""
    around: float | None = None
    """The figure is the metric's distance from this value, so a bound lies on both sides."""
    follows: tuple[str, ...] = ()
    """Rules about possible causes: while one of them has a finding, this rule's finding counts as its consequence."""
    unless: Callable[[Config], str] = lambda config: ""
    """The reason why the rule doesn't apply to a run; empty if it does."""


share_rule = partial(HealthRule, format="percent", maximum=1.0)
"""A rule about a share, of at most 100%."""
