"""The only way a view obtains a reward config or one of its versions."""

from __future__ import annotations

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest

from controlplane.rewards.models import RewardConfig, RewardVersion


def configs_for(request: HttpRequest) -> QuerySet[RewardConfig]:
    """Everybody who is signed in sees every config; `run_count` says how many runs took one of its versions."""
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
    """Of each config the version that new runs take, by the config's name."""
    newer = RewardVersion.objects.filter(config=OuterRef("config"), number__gt=OuterRef("number"))
    return RewardVersion.objects.filter(~Exists(newer)).select_related("config").order_by("config__name")


def offered_versions(chosen: object = None) -> QuerySet[RewardVersion]:
    """What a new run may take: the newest version of every config in use, and the one that is `chosen` (a pk as a form
    has it), if its config is in use."""
    in_use = RewardVersion.objects.filter(config__archived_at=None).select_related("config").order_by("config__name")
    newer = RewardVersion.objects.filter(config=OuterRef("config"), number__gt=OuterRef("number"))
    text = str(chosen or "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    return in_use.filter(Q(~Exists(newer)) | Q(pk=number))


def free_name(wanted: str) -> str:
    """`wanted`, or with a number behind it the first name that no config has."""
    taken = set(RewardConfig.objects.values_list("name", flat=True))
    longest = 80 - len(" 999")
    names = [wanted, *(f"{wanted[:longest]} {n}" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
