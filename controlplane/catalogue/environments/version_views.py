"""The page of a version of an environment, and its changes since the previous version."""

from __future__ import annotations

from dataclasses import fields

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.catalogue.environments import showing
from controlplane.catalogue.environments.forms import LIMIT_LABELS
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.versioned import views
from controlplane.catalogue.versioned.differences import Difference, part_differences, setting_difference
from controlplane.catalogue.versioned.queries import version_for
from workers.contract.run.episodes import EpisodeLimits


@require_GET
def version(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    return version_page(request, version_for(EnvironmentVersion, request, environment_id, number))


def version_page(request: HttpRequest, version: EnvironmentVersion) -> HttpResponse:
    limits = [(words, getattr(version.episode_limits, name)) for name, words in LIMIT_LABELS.items()]
    specs = version.specs
    preview = None if showing.costly(specs) else showing.preview(specs)
    return views.version_page(request, version, limits=limits, preview=preview)


def differences(before: EnvironmentVersion, after: EnvironmentVersion) -> list[Difference]:
    changes, old, new = part_differences(before, after), before.episode_limits, after.episode_limits
    for name in (field.name for field in fields(EpisodeLimits)):
        changes += setting_difference(LIMIT_LABELS[name].lower(), getattr(old, name), getattr(new, name))
    return changes
