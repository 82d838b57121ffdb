"""The list of models, and one model's page with its lineage, its evaluations and its jobs."""

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from controlplane.platform.accounts.roles import person
from controlplane.platform.http.keyset import whole_parameter
from controlplane.platform.http.middleware import STOP_POLLING
from controlplane.platform.templatetags.frame import EmptyState
from runs.engine import deletions
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.jobs import model_jobs
from runs.engine.jobs import results as job_results
from runs.engine.served import conversation
from runs.insight import quality
from runs.insight.evaluations import results as evaluation_results
from runs.pages.model_pages import facts
from workers.contract.run.jobs import BENCHMARK_TASKS, GGUF_TYPES, USUAL_BENCHMARK_EXAMPLES

NO_RUN_MODEL = EmptyState(
    "box",
    "No run has saved a model yet",
    "Runs save checkpoints while they train. Each appears here and can be evaluated, merged, downloaded or trained.",
)
NO_RUN_MATCHES = EmptyState(
    "search",
    "No run's model matches",
    "Try fewer words. The search covers names, run ids and base models.",
    act="Show all models",
)
NO_HOST_MODEL = EmptyState(
    "hard-drive",
    "No host has a model",
    "Put a model into a host's model folder, or enter a hub id in New run: the host keeps the models it downloads.",
)
NO_HOST_MATCHES = EmptyState(
    "hard-drive", "No model on a host matches", "The search covers names, folders and hub ids."
)


@require_safe
def models(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()
    page, runs = catalogue.page_of_saved(request, text=query, page=whole_parameter(request, "page", 1, 1, 10**6))
    context = {
        "q": query,
        "page": page,
        "runs": runs,
        "base_models": catalogue.base_models(query),
        "no_run_model": replace(NO_RUN_MATCHES, address=reverse("models")) if query else NO_RUN_MODEL,
        "no_host_model": NO_HOST_MATCHES if query else NO_HOST_MODEL,
    }
    return render(request, "pages/model_pages/list.html", context)


@require_safe
def model(request: HttpRequest, event_id: int) -> HttpResponse:
    """Show a model; an htmx request gets only the jobs, until all have ended, and reloads the page after a deletion."""
    saved_model = catalogue.model_for(request, event_id)
    jobs = job_results.of_checkpoint(saved_model.checkpoint)
    is_live = any(job.live for job in jobs) or saved_model.checkpoint.is_being_deleted
    context = {
        "model": saved_model,
        "run": saved_model.run,
        "checkpoint": saved_model.checkpoint,
        "has_turns": conversation.turns_of(saved_model.checkpoint).exists(),
        "jobs": jobs,
        "live": is_live,
        "benchmarks": job_results.of_benchmarks(jobs),
        "may_operate": person(request).may_operate,
        "may_administer": person(request).may_administer,
        "merge": {"refusal": model_jobs.merge_problem(saved_model.checkpoint), "choices": model_jobs.DTYPES},
    }
    asked_again = request.headers.get("HX-Request") == "true"
    if asked_again and "going" in request.GET and not saved_model.checkpoint.is_being_deleted:
        return HttpResponse(headers={"HX-Refresh": "true"})
    if person(request).may_operate and not saved_model.checkpoint.removed and not (asked_again and is_live):
        context["deletion"] = {
            "obstacles": list(deletions.obstacles(saved_model.checkpoint)),
            "consequences": list(deletions.consequences(saved_model.checkpoint)),
        }
    if asked_again:
        context["asked_again"] = True
        return render(request, "pages/model_pages/_jobs.html", context, status=200 if is_live else STOP_POLLING)
    return render(request, "pages/model_pages/model.html", context | _whole_page(saved_model))


def _whole_page(saved_model: SavedModel) -> dict[str, Any]:
    checkpoint = saved_model.checkpoint
    of_run = evaluation_results.of_run(saved_model.trained_by)
    evaluations = [result for result in of_run if result.folder in ("", checkpoint.folder)]
    own_evaluations = [result for result in evaluations if result.folder and (result.live or result.ended_well)]
    newest_evaluation = max(own_evaluations, key=lambda result: result.run.created_at, default=None)
    failure = f"The model wasn't deleted: {checkpoint.deletion.data.get('problem', '')}" if checkpoint.deletion else ""
    convertible = bool(model_jobs.converting_hosts(checkpoint))
    return {
        "gguf": {"types": GGUF_TYPES, "merge_first": model_jobs.MERGE_FIRST} if convertible else None,
        "benchmark_tasks": BENCHMARK_TASKS,
        "benchmark_examples": USUAL_BENCHMARK_EXAMPLES,
        "evaluations": [("Before training" if result.step is None else "This model", result) for result in evaluations],
        "chat_css": "primary" if checkpoint.usable else "",
        "warning": facts.why_unusable(saved_model) or failure,
        "fact_cards": [
            ("quality", "Quality", facts.quality_facts(saved_model, quality.of(saved_model), newest_evaluation)),
            ("facts", "Model", facts.model_facts(saved_model)),
            ("lineage", "Lineage", facts.lineage_facts(saved_model, catalogue.siblings(saved_model))),
        ],
    }
