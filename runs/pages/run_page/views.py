"""A run's page: its head, the tabs that have no module of their own, and the stop and no-resume actions."""

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import checkpoints, queries, timeline
from runs.engine.models import Run
from runs.engine.scheduling import recovery, stopping
from runs.engine.sentences import STOPS
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE
from runs.insight.health import drawn
from runs.insight.metrics import run_charts
from runs.insight.metrics.chart_spec import Tile
from runs.launch.new_run import dry_run
from runs.pages.run_page import header, memory, spec_facts
from workers.contract.run import jobs
from workers.contract.run.learnability import CHECK
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import StopMode

TABS = {
    "charts": "Charts",
    "completions": "Completions",
    "logs": "Logs",
    "events": "Events",
    "checkpoints": "Checkpoints",
    "spec": "Spec",
}
TABS_OF_A_JOB = {"logs": "Logs", "events": "Events", "spec": "Spec", "charts": "Machine"}


@require_safe
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    tabs = TABS_OF_A_JOB if run.kind in jobs.KINDS else TABS
    first_tab, tab = next(iter(tabs)), request.GET.get("tab", "")
    tab = tab if tab in tabs else first_tab
    groups = drawn.with_bounds(run_charts.plan_of(run), run)
    context = header.head(run, person(request))
    stepless = context["final"] and not run.step
    if stepless:
        groups = run_charts.with_data(groups, run.last_metrics)
    page = {
        "id": run.pk,
        "name": run.name,
        "health": run.health.get("verdict", ""),
        **{name: context["s"][name] for name in ("status", "step", "max_steps")},
        "socket": f"/ws/runs/{run.pk}/",
        "series": reverse("run_series", args=[run.pk]),
        "metrics": reverse("run_metrics", args=[run.pk]),
        "head": reverse("run_head", args=[run.pk]),
        "charts": run_charts.as_json(groups),
        "marked": sorted(run_charts.MARKED_CHARTS),
        "events": _marks(run),
        "starts": run.trainings(),
        "tab": tab,
        "first": first_tab,
    }
    context |= {
        "groups": groups,
        "stepless": stepless and run.trains,
        "tiles": [(tile, None if tile.note else run.last_metrics.get(tile.metric)) for tile in _tiles(run)],
        "page": page,
        "tabs": tabs.items(),
        "panels": [(name, reverse(f"run_{name}", args=[run.pk]), name == tab) for name in tabs if name != "charts"],
        "crumbs": _crumbs(run),
        # A gain that may be due to chance has no tone.
        "gain_tone": ("good" if (context["s"]["gain"] or 0) > 0 else "bad") if context["s"]["gain_counts"] else "muted",
        "tab": tab,
    }
    return render(request, "pages/run_page/run.html", context)


def _marks(run: Run) -> list[dict[str, Any]]:
    marked_events = [event for event in timeline.events(run) if event["kind"] in run_charts.MARKED_CHARTS]
    return [{name: event[name] for name in ("id", "at", "step", "kind", "text")} for event in marked_events]


def _crumbs(run: Run) -> list[tuple[str, str]]:
    runs, hardware = reverse("runs"), reverse("hardware")
    if run.trial_id:
        return [(hardware, "Hardware"), (reverse("trial", args=[run.trial_id]), "Trial")]
    if run.kind == CHECK:
        return [(f"{runs}?kind={CHECK}", "Runs"), (reverse("learnability", args=[run.pk]), "Learnability")]
    if run.kind in jobs.KINDS and (source := checkpoints.by_folder(run.spec.get("start_from", ""))):
        return [(reverse("models"), "Models"), (reverse("model", args=[source.event.pk]), source.name)]
    if run.kind == jobs.WARM:
        return [(f"{hardware}#warm-servers", "Hardware")]
    if run.source_id:
        return [(runs, "Runs"), (reverse("evaluations", args=[run.source_id]), "Evaluations")]
    return [(runs, "Runs")]


def _tiles(run: Run) -> list[Tile]:
    if run.kind in jobs.KINDS:
        return []
    try:
        return run_charts.tiles(spec_of(run), run_charts.gpus_of(run))
    except ContractError:  # the spec is from another version, so its tiles are unknown
        return []


@require_safe
def head(request: HttpRequest, run_id: str) -> HttpResponse:
    """Render the parts that change with the run's state, which the page swaps in."""
    return render(request, "pages/run_page/_head.html", header.head(queries.run_for(request, run_id), person(request)))


@require_safe
def spec(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    spec_json = json.dumps(run.spec, indent=2, ensure_ascii=False)
    if "download" in request.GET:
        response = HttpResponse(spec_json, content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="{run.pk}-spec.json"'
        return response
    context: dict[str, Any] = {"run": run, "text": spec_json}
    try:
        spec = spec_of(run)
        context |= {
            "spec": spec,
            "memory": memory.compare_memory(run),
            "facts": spec_facts.model_and_data(run, spec),
            "hardware_facts": spec_facts.hardware(spec.hardware),
            "episode_facts": spec_facts.episodes(spec.episodes, run.environment_version) if spec.episodes else None,
        }
    except ContractError as error:
        context["unreadable"] = str(error)
    return render(request, "pages/run_page/_spec.html", {**context, **dry_run.commands_of(lambda: dry_run.of_run(run))})


@require_POST
@operator_required
def stop(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    mode = request.POST.get("mode")
    if mode not in set(StopMode):
        return HttpResponse("Use mode=save or mode=now.", status=400, content_type="text/plain")
    attempt = run.latest()
    if not stopping.request_stop(attempt, StopMode(mode), person(request)):
        attempt.refresh_from_db()
        requester = attempt.stop_requested_by
        if attempt.status not in ACTIVE:
            messages.info(request, f"{run.name} had already ended, so nothing was stopped.")
        elif requester != person(request) or attempt.stop_mode != mode:
            actor = f" by {requester.get_username()}" if requester else ""
            messages.info(
                request, f"{run.name} has already been asked to {STOPS.get(attempt.stop_mode, 'stop')}{actor}."
            )
    return redirect("run", run.pk)


@require_POST
@operator_required
def no_resume(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    if not recovery.cancel_planned(run, person(request).get_username()):
        messages.info(request, f"No automatic resume of {run.name} is planned.")
    return redirect("run", run.pk)
