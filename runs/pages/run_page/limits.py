"""A run's limits and early-stopping rules, as sentences and as bars that show how much is used."""

from dataclasses import dataclass

from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.spec import spec_of
from runs.insight.metrics.run_charts import LIMITS_PREFIX
from workers.contract.run.limits import LimitsSpec
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EventKind


@dataclass(frozen=True)
class LimitBar:
    """The used part of one limit, according to the supervisor's last report."""

    metric: str
    label: str
    used: float
    bound: float
    unit: str


def bars(run: Run, attempt: Attempt) -> list[LimitBar]:
    try:
        limits = spec_of(run).limits
    except ContractError:
        return []
    currency = str((attempt.placement or {}).get("currency") or "")
    bounds = {
        "hours": ("Hours", limits.hours, "h"),
        "tokens": ("Tokens", limits.tokens, ""),
        "money": ("Money", limits.money, currency),
    }
    limit_bars = [
        _bar(run, name, label, bound, unit) for name, (label, bound, unit) in bounds.items() if bound is not None
    ]
    if (rule := limits.no_better) is not None:
        limit_bars.append(_bar(run, "no_better", f"{rule.metric} without a new best", rule.steps, "steps"))
    if (bound := limits.beyond) is not None:
        direction = "above" if bound.above else "below"
        limit_bars.append(
            _bar(run, "beyond", f"{bound.metric} {direction} {bound.bound:g}", bound.steps, "steps in a row")
        )
    return limit_bars


def _bar(run: Run, name: str, label: str, bound: float, unit: str) -> LimitBar:
    metric = LIMITS_PREFIX + name
    used_amount = run.last_metrics.get(metric)
    return LimitBar(
        metric, label, float(used_amount) if isinstance(used_amount, int | float) else 0.0, float(bound), unit
    )


def sentences(limits: LimitsSpec) -> list[str]:
    amounts = [(limits.hours, "hours"), (limits.tokens, "tokens"), (limits.money, "in money")]
    limit_sentences = [f"The run ends after {amount:,g} {unit}." for amount, unit in amounts if amount is not None]
    rules = (limits.no_better, limits.beyond)
    return limit_sentences + [f"The run ends when {rule.condition}." for rule in rules if rule is not None]


def recommended_step(run: Run) -> int | None:
    """Return the step recommended by the rule that ended the run, or None if there is none."""
    event = RunEvent.objects.filter(run=run, kind=EventKind.LIMIT).order_by("-id").first()
    step = event.data.get("recommended") if event is not None else None
    return step if isinstance(step, int) else None
