"""A version of a reward config."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.catalogue.rewards.balance import balance
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.rewards.queries import version_for
from controlplane.catalogue.versioned import views


@require_GET
def version(request: HttpRequest, config_id: int, number: int) -> HttpResponse:
    return version_page(request, version_for(request, config_id, number))


def version_page(request: HttpRequest, version: RewardVersion) -> HttpResponse:
    return views.version_page(request, version, balance=balance(version.specs, version.aggregation))
