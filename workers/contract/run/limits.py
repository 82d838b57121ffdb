"""Limits of a run, and rules on its metrics that end it before its last step. Standard library only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NoBetterSpec:
    """A rule that ends the run when a metric has not improved for some steps."""

    metric: str
    """The metric's name as the trainer logs it, such as `eval_reward` or `rewards/<name>/mean`."""
    steps: int
    higher: bool = True
    least_gain: float = 0.0
    """Minimum gain that counts as an improvement."""

    @property
    def condition(self) -> str:
        return f"the metric {self.metric} has not improved for {self.steps:,} steps"


@dataclass(frozen=True)
class BeyondSpec:
    """A rule that ends the run when a metric has been beyond a bound for some consecutive steps."""

    metric: str
    bound: float
    steps: int
    above: bool = True

    @property
    def condition(self) -> str:
        side = "above" if self.above else "below"
        return f"the metric {self.metric} has been {side} {self.bound:g} for {self.steps:,} steps"


@dataclass(frozen=True)
class LimitsSpec:
    """A run's limits; None for no limit. Time and money count from each attempt's claim, loading included, over all
    attempts."""

    hours: float | None = None
    tokens: int | None = None
    """TRL's num_tokens: prompts and completions of all ranks."""
    money: float | None = None
    """Maximum cost in the host's currency: its price per GPU-hour, times the leased GPUs."""
    no_better: NoBetterSpec | None = None
    beyond: BeyondSpec | None = None


@dataclass(frozen=True)
class Spent:
    """The time and money that the run's earlier attempts have used."""

    hours: float = 0.0
    money: float = 0.0
