"""A run's limits and early-stop rules, enforced on the host so that they apply while the control plane is
unavailable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec, Spent
from workers.contract.run.spec import Placement
from workers.contract.wire.names import EndReason

NUM_TOKENS = "num_tokens"
UNSEEN_STEPS = 100
"""Minimum number of steps before a warning that a rule's metric has never been logged."""


@dataclass(frozen=True)
class ReachedLimit:
    reason: EndReason
    text: str
    recommended: int | None = None
    """Step with the best model by the rule; None for the last step."""


class LimitWatch:
    """The watch on a run's limits, used up across all attempts, and its rules on metrics, applied to this attempt."""

    def __init__(self, limits: LimitsSpec, placement: Placement, *, began: float) -> None:
        self._limits = limits
        self._spent: Spent = placement.spent
        self._price = (placement.gpu_hour_price or 0.0) * len(placement.every_gpu)
        self._currency = placement.currency
        self._began = began
        self._tokens = 0.0
        self._step = 0
        self._no_better = _NoBetter(limits.no_better) if limits.no_better else None
        self._beyond = _Beyond(limits.beyond) if limits.beyond else None
        self._reached: ReachedLimit | None = None
        self._warned: set[str] = set()

    @property
    def needs_metrics(self) -> bool:
        """True if a limit or rule depends on the trainer's metrics."""
        return bool(self._limits.tokens is not None or self._no_better or self._beyond)

    def note(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Update the limits and rules with one line of the trainer's metrics."""
        self._step = self._step if step is None else step
        tokens = values.get(NUM_TOKENS)
        self._tokens = float(tokens) if isinstance(tokens, int | float) else self._tokens
        for rule in (self._no_better, self._beyond):
            value = values.get(rule.spec.metric) if rule is not None else None
            if rule is not None and isinstance(value, int | float) and step is not None:
                self._reached = self._reached or rule.note(step, float(value))

    def reached(self, now: float) -> ReachedLimit | None:
        limits, hours, money = self._limits, self._hours(now), self._money(now)
        if limits.hours is not None and hours >= limits.hours:
            return ReachedLimit(EndReason.LIMIT_REACHED, f"it has used {hours:.3g} of {limits.hours:g} hours.")
        if limits.tokens is not None and self._tokens >= limits.tokens:
            return ReachedLimit(
                EndReason.LIMIT_REACHED, f"it has used {self._tokens:,.0f} of {limits.tokens:,} tokens."
            )
        if limits.money is not None and self._price and money >= limits.money:
            used_money = f"{money:.2f} of {limits.money:.2f} {self._currency}".rstrip()
            return ReachedLimit(EndReason.LIMIT_REACHED, f"it has used {used_money}.")
        return self._reached

    def metrics(self, now: float) -> dict[str, float]:
        """Return how much of each limit is used, as metrics `limits/<field of LimitsSpec>`; for rules, in steps."""
        limits = self._limits
        amounts: dict[str, float | None] = {
            "hours": None if limits.hours is None else self._hours(now),
            "tokens": None if limits.tokens is None else self._tokens,
            "money": None if limits.money is None else self._money(now),
            "no_better": self._no_better.counted if self._no_better else None,
            "beyond": self._beyond.counted if self._beyond else None,
        }
        return {f"limits/{name}": float(value) for name, value in amounts.items() if value is not None}

    def unseen(self) -> str:
        """Return a warning that a rule's metric is never logged, once for each metric; otherwise ""."""
        for rule in (self._no_better, self._beyond):
            if rule is None or rule.is_logged or rule.spec.metric in self._warned:
                continue
            if self._step >= max(UNSEEN_STEPS, rule.spec.steps):
                self._warned.add(rule.spec.metric)
                return (
                    f"The metric {rule.spec.metric} was not logged in {self._step} steps: its rule can't end the run."
                )
        return ""

    def _hours(self, now: float) -> float:
        return self._spent.hours + (now - self._began) / 3600

    def _money(self, now: float) -> float:
        return self._spent.money + self._price * (now - self._began) / 3600


class _NoBetter:
    def __init__(self, spec: NoBetterSpec) -> None:
        self.spec = spec
        self._best: tuple[int, float] | None = None
        self.counted = 0

    @property
    def is_logged(self) -> bool:
        return self._best is not None

    def note(self, step: int, value: float) -> ReachedLimit | None:
        sign = 1 if self.spec.higher else -1
        if self._best is None or sign * (value - self._best[1]) > self.spec.least_gain:
            self._best = step, value
        best_step, best_value = self._best
        self.counted = step - best_step
        if self.counted < self.spec.steps:
            return None
        sentence = f"{self.spec.condition}: its best was {best_value:.4g} at step {best_step}."
        return ReachedLimit(EndReason.EARLY_STOPPED, sentence, best_step)


class _Beyond:
    def __init__(self, spec: BeyondSpec) -> None:
        self.spec = spec
        self._since: int | None = None
        self._before: int | None = None
        """Last step within the bound."""
        self.is_logged = False
        self.counted = 0

    def note(self, step: int, value: float) -> ReachedLimit | None:
        self.is_logged = True
        if not (value > self.spec.bound if self.spec.above else value < self.spec.bound):
            self._since, self._before, self.counted = None, step, 0
            return None
        self._since = step if self._since is None else self._since
        self.counted = step - self._since + 1
        if self.counted < self.spec.steps:
            return None
        return ReachedLimit(EndReason.EARLY_STOPPED, f"{self.spec.condition}: it is {value:.4g}.", self._before)
