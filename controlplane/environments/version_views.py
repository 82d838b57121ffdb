"""An environment's versions, and actions on a whole environment: archive, copy, delete."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from controlplane.environments import config_yaml, saving, showing
from controlplane.environments.differences import differences
from controlplane.environments.forms import LIMIT_LABELS
from controlplane.environments.models import Environment, EnvironmentVersion
from controlplane.environments.queries import environment_for, version_for

NEWEST_RUNS = 20


@require_GET
def versions(request: HttpRequest, environment_id: int) -> HttpResponse:
    """All versions of an environment, the newest first, with their changes."""
    environment = environment_for(request, environment_id)
    rows = list(
        environment.versions.select_related("created_by", "environment")
        .annotate(run_count=Count("runs"))
        .order_by("-number")
    )
    before = {version.number: version for version in rows}
    entries = [
        (version, differences(before[version.number - 1], version) if version.number - 1 in before else [])
        for version in rows
    ]
    return render(request, "environments/versions.html", {"environment": environment, "versions": entries})


@require_GET
def version(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    return version_page(request, version_for(request, environment_id, number))


def version_page(request: HttpRequest, version: EnvironmentVersion) -> HttpResponse:
    """A version, read-only, with the runs that use it."""
    environment = environment_for(request, version.environment_id)
    context = {
        "environment": environment,
        "version": version,
        "newest": environment.newest(),
        "parts": showing.parts(version),
        "runs": version.runs.order_by("-created_at", "-pk")[:NEWEST_RUNS],
        "run_count": version.runs.count(),
        "limits": [(words, getattr(version.episode_limits, name)) for name, words in LIMIT_LABELS.items()],
    }
    return render(request, "environments/version.html", context)


@operator_required
@require_POST
def duplicate(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    copy = saving.copy(version_for(request, environment_id, number), person(request))
    messages.success(request, f"Copied to {copy.environment.name}.")
    return redirect("environment", copy.environment_id)


@operator_required
@require_POST
def archive(request: HttpRequest, environment_id: int) -> HttpResponse:
    environment = environment_for(request, environment_id)
    if Environment.objects.filter(pk=environment.pk, archived_at=None).update(archived_at=timezone.now()):
        words = "it isn't offered for new runs. Runs that used it are unaffected."
        messages.success(request, f"Archived {environment.name}: {words}")
    return redirect("environment", environment.pk)


@operator_required
@require_POST
def unarchive(request: HttpRequest, environment_id: int) -> HttpResponse:
    environment = environment_for(request, environment_id)
    if Environment.objects.filter(pk=environment.pk).exclude(archived_at=None).update(archived_at=None):
        messages.success(request, f"{environment.name} is offered for new runs again.")
    return redirect("environment", environment.pk)


@operator_required
@require_POST
def delete(request: HttpRequest, environment_id: int) -> HttpResponse:
    environment = environment_for(request, environment_id)
    Environment.objects.filter(pk=environment.pk).delete()
    messages.success(request, f"Deleted {environment.name} with all its versions.")
    return redirect("environments")


@require_safe
def export(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    version = version_for(request, environment_id, number)
    answer = HttpResponse(config_yaml.export(version), content_type="application/yaml; charset=utf-8")
    name = f"{slugify(version.environment.name) or 'environment'}-v{version.number}.yaml"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
