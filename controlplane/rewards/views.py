"""The reward pages: the list, the editor of one config, and the playground beside it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.accounts.models import User
from controlplane.accounts.roles import operator_required, person
from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.queries import ready_versions
from controlplane.rewards import playground
from controlplane.rewards.forms import ConfigForm, Editor, components_from, editor_from, editor_of, fresh
from controlplane.rewards.models import RewardConfig
from controlplane.rewards.queries import config_for, configs_for, free_name
from workers.rewards import LIBRARY


@require_GET
def reward_configs(request: HttpRequest) -> HttpResponse:
    return render(request, "rewards/list.html", {"configs": configs_for(request)})


@operator_required
@require_http_methods(["GET", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return _save(request, editor_from(request.POST), None)
    start = [fresh(key, set()) for key in ("think_tags", "numeric_match") if key in LIBRARY]
    return _editor(request, Editor(ConfigForm(), start), None)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, config_id: int) -> HttpResponse:
    """The editor for those who may edit, the composition for everybody else."""
    if not person(request).may_operate and request.method == "POST":
        raise PermissionDenied("This takes the operator role. Ask an admin of this installation for it.")
    config = config_for(request, config_id)
    if not person(request).may_operate:
        return render(request, "rewards/config.html", {"config": config, "library": LIBRARY})
    if request.method == "POST":
        return _save(request, editor_from(request.POST, config), config)
    return _editor(request, editor_of(config), config)


def _save(request: HttpRequest, editor: Editor, config: RewardConfig | None) -> HttpResponse:
    if editor.is_valid():
        try:
            with transaction.atomic():
                saved = editor.save(person(request))
        except IntegrityError:  # somebody took the name between the check and the save
            editor.config.add_error("name", "There is already a reward config of this name.")
        else:
            messages.success(request, f"Saved {saved.name}. Runs that were launched keep what they were launched with.")
            return redirect("reward_config", saved.pk)
    return _editor(request, editor, config, status=400)


@operator_required
@require_POST
def duplicate(request: HttpRequest, config_id: int) -> HttpResponse:
    copy = _copy(config_for(request, config_id), person(request))
    return redirect("reward_config", copy.pk)


def _copy(config: RewardConfig, owner: User) -> RewardConfig:
    """Under the next free name, also when somebody takes that one between the look and the save."""
    while True:
        name = free_name(f"{config.name[:75]} copy")
        try:
            with transaction.atomic():
                return RewardConfig.objects.create(
                    name=name, description=config.description, components=config.components, owner=owner
                )
        except IntegrityError:
            if not RewardConfig.objects.filter(name=name).exists():
                raise  # something else than the name


@operator_required
@require_POST
def delete(request: HttpRequest, config_id: int) -> HttpResponse:
    config = config_for(request, config_id)
    RewardConfig.objects.filter(pk=config.pk).delete()
    messages.success(request, f"Deleted {config.name}.")
    return redirect("reward_configs")


@operator_required
@require_GET
def component(request: HttpRequest) -> HttpResponse:
    """A new row of the editor, for a function of the library."""
    key = request.GET.get("function", "")
    if key not in LIBRARY:
        return HttpResponse("There is no such reward.", status=404, content_type="text/plain")
    taken = {str(value) for name, value in request.GET.items() if name.endswith("-name")}
    place = len(request.GET.getlist("row"))
    return render(request, "rewards/_component.html", {"component": fresh(key, taken), "place": place, "open": True})


@operator_required
@require_GET
def sample(request: HttpRequest) -> HttpResponse:
    """Another row to try the rewards on, with completions made from its answer."""
    return render(request, "rewards/_sample.html", _sample(request, request.GET))


@operator_required
@require_POST
def try_out(request: HttpRequest) -> HttpResponse:
    forms = components_from(request.POST)
    specs = [form.spec() for form in forms if form.is_valid()]
    _, row, _ = _chosen(request, request.POST)
    context = {
        "trial": playground.try_on(specs, row, request.POST.getlist("completion")),
        "problems": [(form["name"].value(), form.errors) for form in forms if not form.is_valid()],
    }
    return render(request, "rewards/_trial.html", context)


def _editor(request: HttpRequest, editor: Editor, config: RewardConfig | None, status: int = 200) -> HttpResponse:
    context = {
        "editor": editor,
        "form": editor.config,
        "config": config,
        "library": LIBRARY.values(),
        "versions": ready_versions(request),
        **_sample(request, request.GET if request.method == "GET" else request.POST),
    }
    return render(request, "rewards/edit.html", context, status=status)


def _sample(request: HttpRequest, fields: Any) -> dict[str, Any]:
    version, row, number = _chosen(request, fields)
    rows = playground.sample_rows(version)
    return {
        "version": version,
        "row": row,
        "number": number,
        "next_number": (number + 1) % len(rows),
        "row_count": len(rows),
        "prompt": playground.shown_prompt(row),
        "completions": playground.suggested(row),
    }


def _chosen(request: HttpRequest, fields: Any) -> tuple[DatasetVersion | None, dict[str, Any], int]:
    """The version, row and row number that the form names; the first ones where it names none that exist."""
    asked, at = fields.get("version", ""), fields.get("sample", "0")
    versions = ready_versions(request)
    found = versions.filter(pk=asked).first() if asked.isdecimal() and len(asked) < 19 else None
    version = found or versions.first()
    rows = playground.sample_rows(version)
    number = int(at) % len(rows) if at.isdecimal() and len(at) < 9 else 0
    return version, rows[number], number
