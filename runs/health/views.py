"""Health presets, built-in and custom, and the choice of a run's preset."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from runs import queries
from runs.health import page
from runs.health.forms import PresetForm
from runs.health.presets import choices, preset_of
from runs.models import HealthPreset, Run
from runs.states import ACTIVE


@require_safe
def presets(request: HttpRequest) -> HttpResponse:
    used = dict(Run.objects.exclude(preset=None).values_list("preset").annotate(Count("pk")))
    rows = [(row, used.get(row.pk, 0)) for row in choices()]
    return render(request, "health/presets.html", {"presets": rows})


@require_http_methods(["GET", "HEAD", "POST"])
def preset(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    """Show a preset to everyone; saving requires the operator role and a custom preset."""
    row = get_object_or_404(HealthPreset, pk=preset_id)
    if request.method == "POST":
        return _change(request, row)
    return _show(request, PresetForm(None, preset=row))


@operator_required
def _change(request: HttpRequest, row: HealthPreset) -> HttpResponseBase:
    if row.slug is not None:
        messages.error(request, "Built-in presets can't be changed. Clone this one and change the clone.")
        return redirect("health_preset", row.pk)
    form = PresetForm(request.POST, preset=row)
    if not form.is_valid():
        return _show(request, form, status=422)
    form.save()
    messages.success(request, f"Preset {row.name} is saved. Runs that use it are rated again within seconds.")
    return redirect("health_presets")


def _show(request: HttpRequest, form: PresetForm, status: int = 200) -> HttpResponse:
    may_change = form.preset.slug is None and person(request).may_operate
    context = {"form": form, "preset": form.preset, "lines": list(form.lines()), "may_change": may_change}
    return render(request, "health/preset.html", context, status=status)


@require_POST
@operator_required
def copy(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    row = get_object_or_404(HealthPreset, pk=preset_id)
    source = row.source if row.slug is None else f"From “{row.name}”. {row.source}".strip()
    with transaction.atomic():
        copied = HealthPreset.objects.create(
            name=_free_name(row.name), owner=person(request), bounds=row.bounds, source=source
        )
    return redirect("health_preset", copied.pk)


@require_POST
@operator_required
def make_default(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    row = get_object_or_404(HealthPreset, pk=preset_id)
    with transaction.atomic():
        HealthPreset.objects.filter(is_default=True).update(is_default=False)
        HealthPreset.objects.filter(pk=row.pk).update(is_default=True)
    messages.success(request, f"Runs without a preset now use {row.name}.")
    return redirect("health_presets")


@require_POST
@operator_required
def delete(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    row = get_object_or_404(HealthPreset, pk=preset_id)
    if row.slug is not None or row.is_default:
        what = "The default preset" if row.is_default else "A built-in preset"
        messages.error(request, f"{what} can’t be deleted.")
        return redirect("health_preset", row.pk)
    row.delete()
    messages.success(request, f"Preset {row.name} is deleted. Its runs now use the default.")
    return redirect("health_presets")


@require_POST
@operator_required
def choose(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Choose a run's preset and assess the run again at once."""
    from runs.health import tick  # imports numpy

    run = queries.run_for(request, run_id)
    row = get_object_or_404(HealthPreset, pk=_whole(request.POST.get("preset")))
    run.preset = None if row.is_default else row
    Run.objects.filter(pk=run.pk).update(preset=run.preset)
    if page.card(run) is not None:
        tick.look_at(run, preset_of(run), timezone.now(), tell=run.latest().status in ACTIVE)
    return redirect("run", run.pk)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _free_name(name: str) -> str:
    taken = set(HealthPreset.objects.values_list("name", flat=True))
    stem = f"Copy of {name}"[:72]
    numbered = (f"{stem} {number}" for number in range(2, len(taken) + 3))
    return stem if stem not in taken else next(each for each in numbered if each not in taken)
