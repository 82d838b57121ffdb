"""Limits of a run, and rules on its metrics that end it before its last step. Standard library only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NoBetterSpec:
    """Ends the run when a metric has not improved for some steps."""

    metric: str
    """As the trainer logs it: `eval_reward`, `rewards/<name>/mean`."""
    steps: int
    higher: bool = True
    """True if higher values are better."""
    least_gain: float = 0.0
    """A smaller gain is no improvement."""

    @property
    def condition(self) -> str:
        return f"the metric {self.metric} has not improved for {self.steps:,} steps"


@dataclass(frozen=True)
class BeyondSpec:
    """Ends the run when a metric has been beyond a bound for some steps in a row."""

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
    """None: no such limit. Time and money count from the claim of each attempt, loading included, over all attempts."""

    hours: float | None = None
    tokens: int | None = None
    """TRL's num_tokens: prompts and completions of all ranks."""
    money: float | None = None
    """The limit in the currency of the host: its price per GPU-hour, times the leased GPUs."""
    no_better: NoBetterSpec | None = None
    beyond: BeyondSpec | None = None


@dataclass(frozen=True)
class Spent:
    """Time and money that the run's earlier attempts have used."""

    hours: float = 0.0
    money: float = 0.0
