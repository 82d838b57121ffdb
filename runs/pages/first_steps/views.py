"""The start page, the page of a recipe, and the demo until it is a run."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING
from runs.engine import sentences
from runs.engine.models import Run
from runs.engine.states import RunStatus
from runs.launch import demo as demo_stages
from runs.launch.demo import DemoPreparing, Stage
from runs.pages.first_steps import recipes
from runs.pages.first_steps.steps import steps
from workers.contract.wire.names import Phase


@require_safe
def start(request: HttpRequest) -> HttpResponse:
    every, first_steps = recipes.every(), steps()
    launched, ready = first_steps[-1].done, all(step.done for step in first_steps[:-1])
    context = {
        "steps": first_steps,
        "recipes": every,
        "demo": demo_stages.preparing(),
        # Suggest the recipe that fits, unless the user has data and rewards already.
        "by_recipe": not launched and bool(every[0].hosts) and (every[0].complete or not ready),
        "by_hand": not launched and ready and not every[0].complete,
    }
    return render(request, "pages/first_steps/start.html", context)


@require_safe
def demo(request: HttpRequest) -> HttpResponseBase:
    """The demo's preparations, then a redirect to its run. The first sign-in link leads here."""
    now, run = demo_stages.preparing(), demo_stages.newest()
    if now is None and run is not None:
        now = _starting(run)
    whole = request.headers.get("HX-Request") != "true"
    if now is None:
        to = reverse("run", args=[run.pk]) if run else reverse("runs")
        return redirect(to) if whole else HttpResponse(headers={"HX-Redirect": to})
    context = {"steps": demo_stages.steps(now), "run": run if now.stage == Stage.START else None}
    return render(request, "pages/first_steps/demo.html" if whole else "pages/first_steps/_demo.html", context)


def _starting(run: Run) -> DemoPreparing | None:
    attempt = run.latest()
    if attempt.status not in (RunStatus.QUEUED, RunStatus.STARTING):
        return None
    # The stage already names this phase.
    detail = "" if attempt.phase == Phase.TRAINER_STARTING else sentences.of_attempt(attempt)
    return DemoPreparing(Stage.START, detail, attempt.created_at.timestamp())


@require_safe
def recipe(request: HttpRequest, slug: str) -> HttpResponse:
    """A recipe; an htmx request gets only its parts, and is redirected to New run once the dataset is read."""
    parts = recipes.parts(_named(slug))
    if request.headers.get("HX-Request") != "true":
        return render(request, "pages/first_steps/recipe.html", {"parts": recipes.fitted([parts])[0]})
    if parts.complete and person(request).may_operate:
        return HttpResponse(headers={"HX-Redirect": parts.address})
    return render(
        request, "pages/first_steps/_parts.html", {"parts": parts}, status=200 if parts.being_read else STOP_POLLING
    )


@require_POST
@operator_required
def prepare(request: HttpRequest, slug: str) -> HttpResponseBase:
    chosen = _named(slug)
    try:
        recipes.prepare(chosen, person(request))
    except DatasetError as error:
        messages.warning(request, str(error))
    parts = recipes.parts(chosen)
    return redirect(parts.address) if parts.complete else redirect("recipe", chosen.slug)


def _named(slug: str) -> recipes.StarterRecipe:
    starter = recipes.find(slug)
    if starter is None:
        raise Http404("There is no such recipe.")
    return starter
