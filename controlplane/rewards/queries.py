"""Access to reward configs and versions: the only way for views to get one."""

from __future__ import annotations

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest

from controlplane.rewards.models import RewardConfig, RewardVersion


def configs_for(request: HttpRequest) -> QuerySet[RewardConfig]:
    """All configs, for every signed-in user; `run_count` is the number of runs with one of its versions."""
    if not request.user.is_authenticated:
        return RewardConfig.objects.none()
    return RewardConfig.objects.select_related("owner").annotate(run_count=Count("versions__runs"))


def config_for(request: HttpRequest, config_id: int) -> RewardConfig:
    config = configs_for(request).filter(pk=config_id).first()
    if config is None:
        raise Http404
    return config


def version_for(request: HttpRequest, config_id: int, number: int) -> RewardVersion:
    if request.user.is_authenticated:
        versions = RewardVersion.objects.select_related("config__owner", "created_by")
        if (version := versions.filter(config=config_id, number=number).first()) is not None:
            return version
    raise Http404


def newest_versions() -> QuerySet[RewardVersion]:
    """The newest version of each config, ordered by the config's name."""
    newer = RewardVersion.objects.filter(config=OuterRef("config"), number__gt=OuterRef("number"))
    return RewardVersion.objects.filter(~Exists(newer)).select_related("config").order_by("config__name")


def offered_versions(chosen: object = None) -> QuerySet[RewardVersion]:
    """Versions to offer for a new run: the newest of each active config, and `chosen` (a pk from a form) if its config
    is active."""
    in_use = RewardVersion.objects.filter(config__archived_at=None).select_related("config").order_by("config__name")
    newer = RewardVersion.objects.filter(config=OuterRef("config"), number__gt=OuterRef("number"))
    text = str(chosen or "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    return in_use.filter(Q(~Exists(newer)) | Q(pk=number))


def free_name(name: str) -> str:
    """`name`, or the first free name with a number appended."""
    used = set(RewardConfig.objects.values_list("name", flat=True))
    longest = 80 - len(" 999")
    names = [name, *(f"{name[:longest]} {n}" for n in range(2, len(used) + 3))]
    return next(name for name in names if name not in used)
