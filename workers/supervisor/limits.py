"""Enforces a run's limits and early-stop rules on the host, so that they hold while the control plane is away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec, Spent
from workers.contract.run.spec import Placement
from workers.contract.wire.names import EndReason

NUM_TOKENS = "num_tokens"
UNSEEN_STEPS = 100
"""The step by which a rule's metric must have been logged; its absence is reported."""


@dataclass(frozen=True)
class Reached:
    """A limit that ends the run."""

    reason: EndReason
    text: str
    recommended: int | None = None
    """The step with the best model by the rule; None: the last step."""


class LimitWatch:
    """Watches the limits, whose use counts over all attempts, and the rules on metrics, which count in this attempt."""

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
        self._reached: Reached | None = None
        self._warned: set[str] = set()

    @property
    def reads(self) -> bool:
        """True if a limit or rule depends on the trainer's metrics."""
        return bool(self._limits.tokens is not None or self._no_better or self._beyond)

    def note(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Read one line of the trainer's metrics."""
        self._step = self._step if step is None else step
        tokens = values.get(NUM_TOKENS)
        self._tokens = float(tokens) if isinstance(tokens, int | float) else self._tokens
        for rule in (self._no_better, self._beyond):
            value = values.get(rule.spec.metric) if rule is not None else None
            if rule is not None and isinstance(value, int | float) and step is not None:
                self._reached = self._reached or rule.note(step, float(value))

    def reached(self, now: float) -> Reached | None:
        """Return the limit or rule that ends the run now, if any."""
        limits, hours, money = self._limits, self._hours(now), self._money(now)
        if limits.hours is not None and hours >= limits.hours:
            return Reached(EndReason.LIMIT_REACHED, f"it has used {hours:.3g} of {limits.hours:g} hours.")
        if limits.tokens is not None and self._tokens >= limits.tokens:
            return Reached(EndReason.LIMIT_REACHED, f"it has used {self._tokens:,.0f} of {limits.tokens:,} tokens.")
        if limits.money is not None and self._price and money >= limits.money:
            used = f"{money:.2f} of {limits.money:.2f} {self._currency}".rstrip()
            return Reached(EndReason.LIMIT_REACHED, f"it has used {used}.")
        return self._reached

    def figures(self, now: float) -> dict[str, float]:
        """Return the use of each limit as metrics `limits/<field of LimitsSpec>`; for rules, the steps that count."""
        limits = self._limits
        used: dict[str, float | None] = {
            "hours": None if limits.hours is None else self._hours(now),
            "tokens": None if limits.tokens is None else self._tokens,
            "money": None if limits.money is None else self._money(now),
            "no_better": self._no_better.counted if self._no_better else None,
            "beyond": self._beyond.counted if self._beyond else None,
        }
        return {f"limits/{name}": float(value) for name, value in used.items() if value is not None}

    def unseen(self) -> str:
        """Return a sentence about a rule's metric that is never logged, once for each metric; otherwise ""."""
        for rule in (self._no_better, self._beyond):
            if rule is None or rule.logged or rule.spec.metric in self._warned:
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
    def logged(self) -> bool:
        return self._best is not None

    def note(self, step: int, value: float) -> Reached | None:
        sign = 1 if self.spec.higher else -1
        if self._best is None or sign * (value - self._best[1]) > self.spec.least_gain:
            self._best = step, value
        at, best = self._best
        self.counted = step - at
        if self.counted < self.spec.steps:
            return None
        return Reached(EndReason.EARLY_STOPPED, f"{self.spec.condition}: its best was {best:.4g} at step {at}.", at)


class _Beyond:
    def __init__(self, spec: BeyondSpec) -> None:
        self.spec = spec
        self._since: int | None = None
        self._before: int | None = None
        """The last step within the bound."""
        self.logged = False
        self.counted = 0

    def note(self, step: int, value: float) -> Reached | None:
        self.logged = True
        if not (value > self.spec.bound if self.spec.above else value < self.spec.bound):
            self._since, self._before, self.counted = None, step, 0
            return None
        self._since = step if self._since is None else self._since
        self.counted = step - self._since + 1
        if self.counted < self.spec.steps:
            return None
        return Reached(EndReason.EARLY_STOPPED, f"{self.spec.condition}: it is {value:.4g}.", self._before)
