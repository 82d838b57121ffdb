"""The pages of trials: choosing candidates, results, stopping."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING
from runs.engine import queries
from runs.engine.scheduling.limits import QueueFull
from runs.engine.sentences import counted
from runs.launch.new_run.drafting import candidate_hosts, known_models
from runs.launch.new_run.fields.choice_fields import offered_datasets
from runs.launch.trials import trials
from runs.launch.trials.forms import TrialForm
from runs.launch.trials.results import progress

FROM_LINKS = ("model", "dataset_version", "reward_version", "host", "environment")
MAX_RECENT = 10


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def trial_new(request: HttpRequest) -> HttpResponseBase:
    """Show the form that selects candidates, or start their trial. An htmx request gets only the candidates, with their
    fit on the selected host."""
    if request.method == "POST":
        form = TrialForm(request.POST)
        if not form.is_valid():
            return _page(request, form, status=422)
        setup, profiles, user = form.setup(), form.cleaned_data["profiles"], person(request)
        key = trials.key_of_page(setup, profiles, user, str(form.cleaned_data["key"]))
        try:
            trial, is_new = trials.start(setup, profiles, user, key)
        except QueueFull as error:
            form.add_error(None, str(error))
            return _page(request, form, status=422)
        if not is_new:
            messages.info(request, "This trial was already started; here it is.")
        return redirect("trial", trial.pk)
    form = TrialForm(initial=_initial(request))
    if request.headers.get("HX-Request") == "true":
        return render(request, "launch/trials/_candidates.html", {"form": form})
    return _page(request, form)


@require_safe
def trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    """Show a trial. An htmx request gets only the results, and stops polling once all runs have ended."""
    row = queries.trial_for(request, trial_id)
    trial_progress = progress(row)
    context = {"trial": row, "progress": trial_progress, "may_operate": person(request).may_operate}
    if request.headers.get("HX-Request") == "true":
        status = 200 if trial_progress.live else STOP_POLLING
        return render(request, "launch/trials/_results.html", context, status=status)
    return render(request, "launch/trials/trial.html", context)


@require_POST
@operator_required
def trial_stop(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    row = queries.trial_for(request, trial_id)
    stopped = trials.stop_all(row, person(request))
    if stopped:
        messages.success(request, f"Asked {counted(stopped, 'candidate')} to stop now.")
    else:
        messages.info(request, "All candidates of this trial have already ended.")
    return redirect("trial", row.pk)


def _initial(request: HttpRequest) -> dict[str, Any]:
    """Collect initial values from the link, and otherwise choose the reachable host with the most GPUs."""
    choices: dict[str, Any] = {name: request.GET[name][:500] for name in FROM_LINKS if request.GET.get(name)}
    choices["profiles"] = [value[:20] for value in request.GET.getlist("profiles")][:100]
    if "host" not in request.GET:
        usable = [view for view in candidate_hosts(None) if view.fresh and not view.row.draining]
        best_host = max(usable, key=lambda view: len(view.gpus), default=None)
        choices["host"] = best_host.row.pk if best_host else None
    return choices | {name: pk for name, pk in _sole_choices().items() if name not in choices}


def _sole_choices() -> dict[str, int]:
    rows = {"dataset_version": offered_datasets(), "reward_version": offered_versions(RewardVersion)}
    choices = {name: list(queryset.values_list("pk", flat=True)[:2]) for name, queryset in rows.items()}
    return {name: pks[0] for name, pks in choices.items() if len(pks) == 1}


def _page(request: HttpRequest, form: TrialForm, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "models": known_models(candidate_hosts(form.chosen_host())),
        "recent": queries.trials_for(request).prefetch_related("runs")[:MAX_RECENT],
    }
    return render(request, "launch/trials/new.html", context, status=status)
