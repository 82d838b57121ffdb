"""The data structure that defines a health rule."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from runs.insight.health.config import Config

Level = Literal["note", "warning", "bad"]

ATROPOS = "Atropos example trainer"
AXOLOTL = "Axolotl’s guide to training stability"
OWN = "our own"

MISMATCH = ("other_tokens", "weights_apart", "kl_flat")
"""Rules about samples that don't come from the policy that is trained, which may look like a divergence."""
DIVERGENCE = (
    *MISMATCH,
    "not_finite",
    "stale",
    "ratio",
    "clip",
    "grad_high",
    "grad_spikes",
    "loss",
    "kl",
    "entropy_rise",
)
"""Rules about diverging updates, which may cause any other finding."""
DECAY = ("gibberish", "repetition", "empty", "length_collapse", "truncation")
"""Rules about degenerate completions, for which rewards mean nothing."""


@dataclass(frozen=True, kw_only=True)
class HealthRule:
    id: str = ""
    title: str
    about: str
    """The definition of the value that the rule judges, for users who set its bounds."""
    mild: Level = "warning"
    above: bool = True
    """True if values above the bounds are bad, False if values below are."""
    warning: float | None = None
    bad: float | None = None
    """The bound of a bad finding; None if there is none. A rule with neither bound is off unless a preset sets one."""
    hold: int = 10
    """Number of steps for which the condition must last before a finding opens."""
    hold_bad: int = 0
    """Number of steps before a bad finding opens, if larger than `hold`."""
    calm: int = 30
    """Number of judged values for which the condition must be over before the finding closes, if larger than `hold`."""
    scale: Callable[[Config], float] = lambda config: 1.0
    format: str = "number"
    """Format of values: number, percent (of a share), percent100, times, steps or count."""
    minimum: float = 0.0
    maximum: float | None = None
    """Upper end of the range of valid bounds, which starts at `minimum`; None if open."""
    source: str = f"The thresholds are {OWN}."
    means: str
    """The finding's sentence, with placeholders for {value}, {bound} and the signal's fields."""
    try_: str
    solved: str = ""
    """The sentence for a reward near its maximum, which makes the finding a note."""
    metric: str = ""
    also: str = ""
    """The metric's name with other losses."""
    field: str = ""
    """The field of the New run form that the advice refers to."""
    read: bool = False
    logs: bool = False
    leads_to: tuple[str, ...] = ()
    """Rules about possible consequences, which follow this rule as if their `follows` named it."""
    find: str = ""
    """Query of the completions tab that finds the completions to read, with placeholders for the signal's fields."""
    drawn: bool = False
    """True if charts show the bounds, because the judged value is the metric itself, averaged over some steps."""
    around: float | None = None
    """The centre from which the judged value is the metric's distance, so that there is a bound on both sides."""
    follows: tuple[str, ...] = ()
    """Rules about possible causes. While one of them has a finding, this rule's finding counts as its consequence."""
    unless: Callable[[Config], str] = lambda config: ""
    """Function that returns why the rule doesn't apply to a run, or "" if it does."""


share_rule = partial(HealthRule, format="percent", maximum=1.0)
"""Constructor of rules about shares, whose bounds are at most 100%."""
