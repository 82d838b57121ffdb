"""The page of a learnability check."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from controlplane.accounts.roles import person
from controlplane.http.htmx import STOP_POLLING
from runs import queries, sentences
from runs.learnability import results
from runs.states import ACTIVE, RunStatus, sentence
from workers.contract import ContractError
from workers.contract.learnability import CHECK


@require_safe
def learnability(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """An htmx request gets only the result, until the check has ended."""
    run = queries.run_for(request, run_id)
    if run.kind != CHECK:
        return redirect("run", run.pk)
    attempt = run.latest()
    live = attempt.status in ACTIVE
    context = {
        "run": run,
        "attempt": attempt,
        "live": live,
        "status": sentences.of_attempt(attempt) if live else sentence(attempt.reason),
        "failed": attempt.status == RunStatus.FAILED,
        "may_operate": person(request).may_operate,
    }
    if not live:
        try:
            context["result"] = result = results.of_run(run)
        except ContractError as error:
            messages.error(request, f"{run.name} can't be read: another version froze its spec ({error}).")
            return redirect("run", run.pk)
        context["verdict"] = results.verdict(result)
    if request.headers.get("HX-Request") == "true":
        return _part(request, context, live=live)
    return render(request, "learnability/check.html", context)


def _part(request: HttpRequest, context: dict[str, object], *, live: bool) -> HttpResponse:
    return render(request, "learnability/_result.html", context, status=200 if live else STOP_POLLING)
