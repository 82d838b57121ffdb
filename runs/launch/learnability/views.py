"""The page of a learnability check."""

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING
from runs.engine import queries, sentences
from runs.engine.states import ACTIVE, RunStatus
from runs.launch.learnability import filtering, results
from workers.contract.run.learnability import CHECK
from workers.contract.wire.documents import ContractError


class SolvedForm(forms.Form):
    """Bounds of the solve rate, in percent."""

    low = forms.IntegerField(min_value=0, max_value=100)
    high = forms.IntegerField(min_value=0, max_value=100)


@require_safe
def learnability(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Show a learnability check. An htmx request gets only the results, and stops polling once the check has ended."""
    run = queries.run_for(request, run_id)
    if run.kind != CHECK:
        return redirect("run", run.pk)
    attempt = run.latest()
    is_live, status = attempt.status in ACTIVE, sentences.of_attempt(attempt)
    context = {
        "run": run,
        "attempt": attempt,
        "live": is_live,
        "status": "Sampling completions." if status == sentences.STATUSES[RunStatus.RUNNING] else status,
        "failed": attempt.status == RunStatus.FAILED,
        "may_operate": person(request).may_operate,
    }
    if not is_live:
        try:
            context["result"] = result = results.of_run(run)
        except ContractError as error:
            messages.error(request, f"{run.name} can't be read, because another version wrote its spec ({error}).")
            return redirect("run", run.pk)
        context["verdict"] = results.verdict(result)
        context["prompts"] = filtering.coverage(run)
    if request.headers.get("HX-Request") == "true":
        return render(request, "launch/learnability/_result.html", context, status=200 if is_live else STOP_POLLING)
    return render(request, "launch/learnability/check.html", context)


@require_POST
@operator_required
def filter_prompts(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Create a version of the run's dataset without the prompts that are solved too rarely or too often."""
    run = queries.run_for(request, run_id)
    form = SolvedForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Enter whole percentages from 0 to 100.")
        return redirect("learnability", run.pk)
    try:
        return redirect(
            filtering.keep_solved(run, form.cleaned_data["low"], form.cleaned_data["high"], person(request))
        )
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect("learnability", run.pk)
