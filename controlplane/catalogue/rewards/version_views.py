"""The page of a version of a reward config, and its changes since the previous version."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.catalogue.rewards.balance import balance
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import views
from controlplane.catalogue.versioned.differences import Difference, part_differences, setting_difference
from controlplane.catalogue.versioned.queries import version_for
from controlplane.platform.templatetags.figures import setting
from workers.contract.run.spec import RewardSpec


@require_GET
def version(request: HttpRequest, config_id: int, number: int) -> HttpResponse:
    return version_page(request, version_for(RewardVersion, request, config_id, number))


def version_page(request: HttpRequest, version: RewardVersion) -> HttpResponse:
    return views.version_page(request, version, balance=balance(version.specs, version.aggregation))


def differences(before: RewardVersion, after: RewardVersion) -> list[Difference]:
    return [
        *part_differences(before, after, more=_weight, settings=_settings),
        *setting_difference("aggregation", before.aggregation, after.aggregation),
        *setting_difference("failure threshold", before.failed_share, after.failed_share),
    ]


def _weight(spec: RewardSpec) -> str:
    return f" × {setting(spec.weight)}{', each turn' if spec.per_turn else ''}"


def _settings(old: RewardSpec, new: RewardSpec) -> list[Difference]:
    return [
        *setting_difference(f"{new.name} weight", old.weight, new.weight),
        *setting_difference(f"{new.name} scores", _scored(old), _scored(new)),
    ]


def _scored(spec: RewardSpec) -> str:
    return "each turn" if spec.per_turn else "the whole completion"
