"""The start page with the four things that a run needs, the page of a recipe, and the page of the demo's setup."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.rewards.models import RewardConfig
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING
from runs.engine import sentences
from runs.engine.models import Run
from runs.engine.sentences import counted
from runs.engine.states import RunStatus
from runs.launch import demo as demo_stages
from runs.launch.demo import DemoPreparing, Stage
from runs.pages.first_steps import recipes
from workers.contract.wire.names import Phase


@require_safe
def start(request: HttpRequest) -> HttpResponse:
    all_recipes, first_steps = recipes.all_recipes(), steps()
    launched, is_ready = first_steps[-1]["is_done"], all(step["is_done"] for step in first_steps[:-1])
    context = {
        "steps": first_steps,
        "recipes": all_recipes,
        "demo": demo_stages.current_stage(),
        # Suggest the recipe that fits, unless the user has data and rewards already.
        "by_recipe": not launched and bool(all_recipes[0].hosts) and (all_recipes[0].complete or not is_ready),
        "by_hand": not launched and is_ready and not all_recipes[0].complete,
    }
    return render(request, "pages/first_steps/start.html", context)


@require_safe
def demo(request: HttpRequest) -> HttpResponseBase:
    """Show how the demo is being prepared, then redirect to its run. The first sign-in link leads here."""
    now, run = demo_stages.current_stage(), demo_stages.newest_run()
    if now is None and run is not None:
        now = _starting(run)
    is_whole_page = request.headers.get("HX-Request") != "true"
    if now is None:
        address = reverse("run", args=[run.pk]) if run else reverse("runs")
        return redirect(address) if is_whole_page else HttpResponse(headers={"HX-Redirect": address})
    context = {"steps": demo_stages.steps(now), "run": run if now.stage == Stage.START else None}
    return render(request, "pages/first_steps/demo.html" if is_whole_page else "pages/first_steps/_demo.html", context)


def _starting(run: Run) -> DemoPreparing | None:
    attempt = run.latest()
    if attempt.status not in (RunStatus.QUEUED, RunStatus.STARTING):
        return None
    # The stage already names this phase.
    detail = "" if attempt.phase == Phase.TRAINER_STARTING else sentences.of_attempt(attempt)
    return DemoPreparing(Stage.START, detail, attempt.created_at.timestamp())


@require_safe
def recipe(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a recipe. An htmx request gets only its parts, and is redirected to New run once the dataset has been
    read."""
    parts = recipes.parts(_recipe_or_404(slug))
    if request.headers.get("HX-Request") != "true":
        return render(request, "pages/first_steps/recipe.html", {"parts": recipes.with_fitting_hosts([parts])[0]})
    if parts.complete and person(request).may_operate:
        return HttpResponse(headers={"HX-Redirect": parts.address})
    status = 200 if parts.being_read else STOP_POLLING
    return render(request, "pages/first_steps/_parts.html", {"parts": parts}, status=status)


@require_POST
@operator_required
def prepare(request: HttpRequest, slug: str) -> HttpResponseBase:
    chosen_recipe = _recipe_or_404(slug)
    try:
        recipes.prepare(chosen_recipe, person(request))
    except DatasetError as error:
        messages.warning(request, str(error))
    parts = recipes.parts(chosen_recipe)
    return redirect(parts.address) if parts.complete else redirect("recipe", chosen_recipe.slug)


def _recipe_or_404(slug: str) -> recipes.StarterRecipe:
    starter = recipes.find(slug)
    if starter is None:
        raise Http404("There is no such recipe.")
    return starter


def steps() -> list[dict[str, Any]]:
    datasets = Dataset.objects.filter(versions__status=DatasetVersion.READY).distinct().count()
    configs, runs, now = RewardConfig.objects.count(), Run.objects.count(), timezone.now()
    hosts = [host for host in Host.objects.all() if host.is_fresh(now)]
    ready_hosts = [host.name for host in hosts if host.inventory.get("trainer") == "ready"]
    data, rewards, hardware, launch = (
        "The prompts to learn from, with their answers.",
        "What makes one completion better than another.",
        "No host is ready to train. The hosts' cards under Hardware say why.",
        "Preflight checks the run before it uses a GPU.",
    )
    if datasets:
        data = f"{counted(datasets, 'dataset')} to train on."
    if configs:
        rewards = f"{counted(configs, 'reward config')}."
    if ready_hosts:
        hardware = f"Ready to train: {', '.join(ready_hosts[:3])}{' …' if len(ready_hosts) > 3 else ''}."
    if runs:
        launch = f"{counted(runs, 'run')} so far."
    datasets_page = ("datasets", "Datasets") if datasets else ("dataset_upload", "Add a dataset")
    rewards_page = ("reward_configs", "Rewards") if configs else ("reward_config_new", "Compose rewards")
    return [
        _step("Data", "database", datasets > 0, data, *datasets_page),
        _step("Rewards", "scale", configs > 0, rewards, *rewards_page),
        _step("Hardware", "cpu", bool(ready_hosts), hardware, "hardware", "Hardware"),
        _step("Launch", "circle-play", runs > 0, launch, "new_run", "New run"),
    ]


def _step(title: str, icon: str, is_done: bool, description: str, route: str, act: str) -> dict[str, Any]:
    return {
        "title": title,
        "icon": "circle-check" if is_done else icon,
        "is_done": is_done,
        "text": description,
        "route": route,
        "act": act,
    }
