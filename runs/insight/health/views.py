"""Pages of health presets, built-in and custom, and the choice of a run's preset."""

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import queries
from runs.engine.models import HealthPreset, Run
from runs.engine.states import ACTIVE
from runs.insight.health import page
from runs.insight.health import presets as choosing
from runs.insight.health.forms import PresetForm
from runs.insight.health.presets import preset_of


@require_safe
def presets(request: HttpRequest) -> HttpResponse:
    run_counts = dict(Run.objects.exclude(preset=None).values_list("preset").annotate(Count("pk")))
    rows = [(row, run_counts.get(row.pk, 0)) for row in choosing.choices()]
    return render(request, "insight/health/presets.html", {"presets": rows})


@require_http_methods(["GET", "HEAD", "POST"])
def preset(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    """Show a preset, or save it if it is a custom preset and the user has the operator role."""
    row = get_object_or_404(HealthPreset, pk=preset_id)
    if request.method == "POST":
        return _change(request, row)
    return _show(request, PresetForm(None, preset=row))


@operator_required
def _change(request: HttpRequest, row: HealthPreset) -> HttpResponseBase:
    if row.slug is not None:
        messages.error(request, "Built-in presets can't be changed. Clone this preset and change the clone.")
        return redirect("health_preset", row.pk)
    form = PresetForm(request.POST, preset=row)
    if not form.is_valid():
        return _show(request, form, status=422)
    form.save()
    messages.success(request, f"Saved the preset {row.name}. Runs that use it are assessed again within seconds.")
    return redirect("health_presets")


def _show(request: HttpRequest, form: PresetForm, status: int = 200) -> HttpResponse:
    may_change = form.preset.slug is None and person(request).may_operate
    context = {"form": form, "preset": form.preset, "groups": form.groups(), "may_change": may_change}
    return render(request, "insight/health/preset.html", context, status=status)


@require_POST
@operator_required
def copy(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    row = get_object_or_404(HealthPreset, pk=preset_id)
    copied = choosing.copy(row, person(request))
    return redirect("health_preset", copied.pk)


@require_POST
@operator_required
def make_default(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    row = get_object_or_404(HealthPreset, pk=preset_id)
    choosing.make_default(row)
    messages.success(request, f"Runs without a preset now use {row.name}.")
    return redirect("health_presets")


@require_POST
@operator_required
def delete(request: HttpRequest, preset_id: int) -> HttpResponseBase:
    row = get_object_or_404(HealthPreset, pk=preset_id)
    if problem := choosing.undeletable(row):
        messages.error(request, problem)
        return redirect("health_preset", row.pk)
    row.delete()
    messages.success(request, f"Deleted the preset {row.name}. Its runs now use the default preset.")
    return redirect("health_presets")


@require_POST
@operator_required
def choose(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    choose_for(run, get_object_or_404(HealthPreset, pk=_whole_number(request.POST.get("preset"))))
    return redirect("run", run.pk)


def choose_for(run: Run, row: HealthPreset) -> None:
    from runs.insight.health import tick  # imports numpy

    run.preset = None if row.is_default else row
    Run.objects.filter(pk=run.pk).update(preset=run.preset)
    if page.card(run) is not None:
        tick.look_at(run, preset_of(run), timezone.now(), with_events=run.latest().status in ACTIVE)


def _whole_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
