"""The only way a view obtains a reward config."""

from __future__ import annotations

from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest

from controlplane.rewards.models import RewardConfig


def configs_for(request: HttpRequest) -> QuerySet[RewardConfig]:
    """Everybody who is signed in sees every config; `run_count` says how many runs took it."""
    if not request.user.is_authenticated:
        return RewardConfig.objects.none()
    return RewardConfig.objects.select_related("owner").annotate(run_count=Count("run"))


def config_for(request: HttpRequest, config_id: int) -> RewardConfig:
    config = configs_for(request).filter(pk=config_id).first()
    if config is None:
        raise Http404
    return config


def free_name(wanted: str) -> str:
    """`wanted`, or with a number behind it the first name that no config has."""
    taken = set(RewardConfig.objects.values_list("name", flat=True))
    longest = 80 - len(" 999")
    names = [wanted, *(f"{wanted[:longest]} {n}" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
