"""The time and money that a run's attempts have used, for its limits."""

from dataclasses import replace

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.spec import readable_spec
from workers.contract.run.limits import LimitsSpec, Spent
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError, from_dict


def with_spending(attempt: Attempt, host: Host, placement: Placement) -> Placement:
    """Return a placement with what earlier attempts used and the host's price, which applies to the whole attempt."""
    spent = spent_before(attempt.run, attempt.number)
    return replace(placement, gpu_hour_price=host.gpu_hour_price, currency=host.currency, spent=spent)


def spent_before(run: Run, number: int) -> Spent:
    """Sum the hours and the money that the attempts before `number` used."""
    hours = money = 0.0
    for attempt in run.attempts.filter(number__lt=number).exclude(claimed_at=None).exclude(ended_at=None):
        if attempt.claimed_at is None or attempt.ended_at is None:
            continue
        elapsed_hours = max(0.0, (attempt.ended_at - attempt.claimed_at).total_seconds()) / 3600
        hours += elapsed_hours
        placement = _placement(attempt)
        money += elapsed_hours * len(placement.every_gpu) * (placement.gpu_hour_price or 0.0) if placement else 0.0
    return Spent(hours, money)


def exhausted_limit(run: Run, number: int) -> str:
    """Explain which limit the attempts before `number` have used up; return "" if there is none."""
    spec, spent = readable_spec(run), spent_before(run, number)
    limits = spec.limits if spec else LimitsSpec()  # a spec of another version can't be launched anyway
    advice = "Clone it with a higher limit."
    if limits.hours is not None and spent.hours >= limits.hours:
        return f"{run.name} has used {spent.hours:.3g} of {limits.hours:g} hours. {advice}"
    if limits.money is not None and spent.money >= limits.money > 0:
        return f"{run.name} has spent {spent.money:.2f} of {limits.money:.2f}. {advice}"
    tokens = run.last_metrics.get("num_tokens")
    if limits.tokens is not None and isinstance(tokens, int | float) and tokens >= limits.tokens:
        return f"{run.name} has used {tokens:,.0f} of {limits.tokens:,} tokens. {advice}"
    return ""


def _placement(attempt: Attempt) -> Placement | None:
    try:
        return from_dict(Placement, attempt.placement) if attempt.placement else None
    except ContractError:
        return None
