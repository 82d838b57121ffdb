"""The list of models, and one model's page with its lineage, its evaluations and its jobs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.platform.accounts.roles import person
from controlplane.platform.http.middleware import STOP_POLLING
from controlplane.platform.http.query_params import whole
from runs.engine import deletions
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.jobs import benchmarking, converting, merging
from runs.engine.jobs import results as job_results
from runs.engine.served import conversation
from runs.insight import quality
from runs.insight.evaluations import results as evaluation_results
from workers.contract.run.benchmarks import TASKS, USUAL_EXAMPLES
from workers.contract.run.gguf import TYPES


@require_safe
def models(request: HttpRequest) -> HttpResponse:
    words = request.GET.get("q", "").strip()
    page, runs = catalogue.saved(request, words=words, page=whole(request, "page", 1, 1, 10**6))
    context = {"q": words, "page": page, "runs": runs, "base_models": catalogue.base_models(words)}
    return render(request, "pages/model_pages/list.html", context)


@require_safe
def model(request: HttpRequest, event_id: int) -> HttpResponse:
    """An htmx request gets only the jobs, until all have ended; the whole page once a deletion has."""
    found = catalogue.model_for(request, event_id)
    jobs = job_results.of_checkpoint(found.checkpoint)
    live = any(job.live for job in jobs) or found.checkpoint.going
    context = {
        "model": found,
        "run": found.run,
        "checkpoint": found.checkpoint,
        "has_turns": conversation.turns_of(found.checkpoint).exists(),
        "jobs": jobs,
        "live": live,
        "benchmarks": benchmarking.results(jobs),
        "may_operate": person(request).may_operate,
        "may_administer": person(request).may_administer,
        "merge": {"refusal": merging.refusal(found.checkpoint), "choices": merging.CHOICES},
    }
    asked_again = request.headers.get("HX-Request") == "true"
    if asked_again and "going" in request.GET and not found.checkpoint.going:
        return HttpResponse(headers={"HX-Refresh": "true"})
    if person(request).may_operate and not found.checkpoint.removed and not (asked_again and live):
        told = {"obstacles": list(deletions.obstacles(found.checkpoint))}
        context["deletion"] = told | {"consequences": list(deletions.consequences(found.checkpoint))}
    if asked_again:
        context["asked_again"] = True
        return render(request, "pages/model_pages/_jobs.html", context, status=200 if live else STOP_POLLING)
    if converting.is_offered(found.checkpoint):
        context["gguf"] = {"types": TYPES, "merge_first": converting.MERGE_FIRST}
    context |= {"benchmark_tasks": TASKS, "benchmark_examples": USUAL_EXAMPLES}
    of_run = evaluation_results.of_run(found.trained_by)
    evaluations = [each for each in of_run if each.folder in ("", found.checkpoint.folder)]
    own = [each for each in evaluations if each.folder and (each.live or each.ended_well)]
    newest = max(own, key=lambda each: each.run.created_at, default=None)
    context |= {"evaluations": evaluations, "quality": quality.of(found), "newest": newest}
    context["siblings"] = catalogue.siblings(found)
    return render(request, "pages/model_pages/model.html", context)
