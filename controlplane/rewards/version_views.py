"""A config's versions, and actions on a whole config: archive, copy, delete."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from controlplane.rewards import config_yaml, saving
from controlplane.rewards.differences import differences
from controlplane.rewards.models import RewardConfig, RewardVersion
from controlplane.rewards.queries import config_for, version_for
from controlplane.rewards.reading import balance_of, parts

NEWEST_RUNS = 20


@require_GET
def versions(request: HttpRequest, config_id: int) -> HttpResponse:
    """All versions of a config, the newest first, with their changes."""
    config = config_for(request, config_id)
    rows = list(config.versions.select_related("created_by").annotate(run_count=Count("runs")).order_by("-number"))
    before = {version.number: version for version in rows}
    entries = [
        (version, differences(before[version.number - 1], version) if version.number - 1 in before else [])
        for version in rows
    ]
    return render(request, "rewards/versions.html", {"config": config, "versions": entries})


@require_GET
def version(request: HttpRequest, config_id: int, number: int) -> HttpResponse:
    return version_page(request, version_for(request, config_id, number))


def version_page(request: HttpRequest, version: RewardVersion) -> HttpResponse:
    """A version, read-only, with the runs that use it."""
    config = config_for(request, version.config_id)
    context = {
        "config": config,
        "version": version,
        "newest": config.newest(),
        "parts": parts(version),
        "balance": balance_of(version),
        "runs": version.runs.order_by("-created_at", "-pk")[:NEWEST_RUNS],
        "run_count": version.runs.count(),
    }
    return render(request, "rewards/version.html", context)


@operator_required
@require_POST
def duplicate(request: HttpRequest, config_id: int, number: int) -> HttpResponse:
    copy = saving.copy(version_for(request, config_id, number), person(request))
    messages.success(request, f"Copied to {copy.config.name}.")
    return redirect("reward_config", copy.config_id)


@operator_required
@require_POST
def archive(request: HttpRequest, config_id: int) -> HttpResponse:
    config = config_for(request, config_id)
    if RewardConfig.objects.filter(pk=config.pk, archived_at=None).update(archived_at=timezone.now()):
        messages.success(
            request, f"Archived {config.name}: it isn't offered for new runs. Runs that used it are unaffected."
        )
    return redirect("reward_config", config.pk)


@operator_required
@require_POST
def unarchive(request: HttpRequest, config_id: int) -> HttpResponse:
    config = config_for(request, config_id)
    if RewardConfig.objects.filter(pk=config.pk).exclude(archived_at=None).update(archived_at=None):
        messages.success(request, f"{config.name} is offered for new runs again.")
    return redirect("reward_config", config.pk)


@operator_required
@require_POST
def delete(request: HttpRequest, config_id: int) -> HttpResponse:
    config = config_for(request, config_id)
    RewardConfig.objects.filter(pk=config.pk).delete()
    messages.success(request, f"Deleted {config.name} with all its versions.")
    return redirect("reward_configs")


@require_safe
def export(request: HttpRequest, config_id: int, number: int) -> HttpResponse:
    version = version_for(request, config_id, number)
    answer = HttpResponse(config_yaml.export(version), content_type="application/yaml; charset=utf-8")
    name = f"{slugify(version.config.name) or 'rewards'}-v{version.number}.yaml"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
