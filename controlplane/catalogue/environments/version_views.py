"""A version of an environment."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.catalogue.environments import showing
from controlplane.catalogue.environments.forms import LIMIT_LABELS
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.queries import version_for
from controlplane.catalogue.versioned import views


@require_GET
def version(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    return version_page(request, version_for(request, environment_id, number))


def version_page(request: HttpRequest, version: EnvironmentVersion) -> HttpResponse:
    limits = [(words, getattr(version.episode_limits, name)) for name, words in LIMIT_LABELS.items()]
    specs = version.specs
    preview = None if showing.costly(specs) else showing.preview(specs)
    return views.version_page(request, version, limits=limits, preview=preview)
