"""Models: checkpoints of runs, base models on hosts, and jobs on a checkpoint."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from ninja import Field, Status

from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import ADMIN, Router, refusing
from runs.api.shapes import Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody, ResponseBody, RunResponse
from runs.engine import checkpoints, deletions, queries
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives, model_jobs, results
from runs.engine.jobs.results import JobView
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.scheduling.limits import QueueFull
from runs.pages.model_pages import action_views, card
from workers.contract.run.jobs import (
    BENCHMARK_TASKS,
    GGUF_TYPES,
    MAX_BENCHMARK_EXAMPLES,
    USUAL_BENCHMARK_EXAMPLES,
    PushSettings,
)
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EventKind

router = Router(tags=["models"])


class Merge(RequestBody):
    dtype: Literal["", "float32"] = ""
    """The data type. If empty, the base model's."""


class Convert(RequestBody):
    type: Annotated[str, Field(max_length=20)] = Field("auto", description=f"One of: {', '.join(GGUF_TYPES)}.")


class Benchmark(RequestBody):
    tasks: list[Annotated[str, Field(max_length=40)]] = Field(
        min_length=1, max_length=len(BENCHMARK_TASKS), description=f"Any of: {', '.join(BENCHMARK_TASKS)}."
    )
    limit: Annotated[int, Field(ge=0, le=MAX_BENCHMARK_EXAMPLES)] = Field(
        USUAL_BENCHMARK_EXAMPLES, description="Number of examples per task. 0 means all."
    )


class Push(RequestBody):
    repository: str = Field(max_length=200, description="owner/name on the hub.")
    private: bool = Field(True, description="If true, a repository that the push creates is private.")
    add: bool = Field(False, description="If true, push to an existing repository.")
    card: str | None = Field(None, description="The text of README.md. If null, the text of GET …/card.")


class Deletion(ResponseBody):
    asked: bool
    """true: the host was asked to delete the model and will confirm the deletion."""


@router.get("models", response=PageResponse)
def models(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List saved models: the usable checkpoints of unarchived runs, newest first."""
    saved_events = RunEvent.objects.filter(
        kind=EventKind.CHECKPOINT, run__archived_at=None, run__deleted_at=None
    ).select_related("run")
    events, next_cursor = shapes.rows_after(saved_events, cursor, limit)
    by_run = {event.run_id: {row.event.pk: row for row in checkpoints.of_run(event.run)} for event in events}
    saved_models = [by_run[event.run_id].get(event.pk) for event in events]
    items = [shapes.checkpoint(model) for model in saved_models if model and model.usable]
    return {"items": items, "next_cursor": next_cursor}


@router.get("models/bases", response=PageResponse)
def base_models(request: HttpRequest) -> Any:
    """List the base models that hosts report."""
    bases = catalogue.base_models("")
    items = [{"path": base.path, "host": base.host.name, "name": base.name} for base in bases]
    return {"items": items, "next_cursor": ""}


@router.get("models/{int:event_id}", response=ItemResponse)
def model(request: HttpRequest, event_id: Id) -> Any:
    """Read a saved model."""
    return {"item": shapes.checkpoint(catalogue.model_for(request, event_id).checkpoint)}


@router.post("models/{int:event_id}/merge", response={201: RunResponse})
def merge(request: HttpRequest, event_id: Id, payload: Merge) -> Any:
    """Merge an adapter into its base model.

    Starts a job. If such a job is already running, the response is that job."""
    return _job(request, event_id, lambda model: model_jobs.merge(model, person(request), dtype=payload.dtype))


@router.post("models/{int:event_id}/archive", response={201: RunResponse})
def archive(request: HttpRequest, event_id: Id) -> Any:
    """Start a job that archives a model for download."""
    return _job(request, event_id, lambda model: archives.start(model, person(request), card=card.text(model)))


@router.post("models/{int:event_id}/gguf", response={201: RunResponse})
def gguf(request: HttpRequest, event_id: Id, payload: Convert) -> Any:
    """Convert a model to GGUF. Starts a job on the model's host, which must have llama.cpp."""
    return _job(request, event_id, lambda model: model_jobs.convert(model, person(request), kind=payload.type))


@router.post("models/{int:event_id}/benchmark", response={201: RunResponse})
def benchmark(request: HttpRequest, event_id: Id, payload: Benchmark) -> Any:
    """Start a job that runs standard benchmarks on a model."""
    user, tasks = person(request), payload.tasks
    return _job(request, event_id, lambda model: model_jobs.benchmark(model, user, tasks=tasks, limit=payload.limit))


@router.get("models/{int:event_id}/card")
def model_card(request: HttpRequest, event_id: Id) -> HttpResponse:
    """Read a model's card.

    It is the README.md that a push would write, based on the run's records. Check it before publishing."""
    text = card.text(catalogue.model_for(request, event_id).checkpoint)
    return HttpResponse(text, content_type="text/markdown; charset=utf-8")


@router.post("models/{int:event_id}/push", auth=ADMIN, response={201: RunResponse})
def push(request: HttpRequest, event_id: Id, payload: Push) -> Any:
    """Push a model to the hub. Starts a job that uses the stored token. Admins only."""
    checkpoint = catalogue.model_for(request, event_id).checkpoint
    initial_form = action_views.PushForm(initial={"card": card.text(checkpoint)})
    form = form_values.fill(action_views.PushForm, payload.dict(exclude_none=True), first=initial_form)
    settings = PushSettings(base=card.base_name(checkpoint), **form.cleaned_data)
    return _job(request, event_id, lambda model: model_jobs.push(model, person(request), settings))


@router.get("models/{int:event_id}/jobs", response=PageResponse)
def jobs(request: HttpRequest, event_id: Id) -> Any:
    """List the jobs on a model, newest first.

    Jobs are merges, conversions, archives, pushes and benchmarks. Each is a run, so POST /runs/{id}/stop stops it."""
    views = results.of_checkpoint(catalogue.model_for(request, event_id).checkpoint)
    return {"items": [_job_view(view) for view in views], "next_cursor": ""}


@router.get("models/{int:event_id}/archive/{slug:job_id}")
def download(request: HttpRequest, event_id: Id, job_id: str) -> HttpResponseBase:
    """Download an archived model as a .tar file. A Range header resumes an interrupted download."""
    return action_views.download(request, event_id, job_id)


@router.delete("models/{int:event_id}", response={202: Deletion})
def delete(request: HttpRequest, event_id: Id) -> Any:
    """Delete a saved model."""
    with refusing(deletions.CheckpointNotDeletable, where="model"):
        deletions.request(catalogue.model_for(request, event_id).checkpoint, person(request))
    return Status(202, {"asked": True})


def _job_view(view: JobView) -> dict[str, Any]:
    return {
        "run": view.run.pk,
        "kind": view.run.kind,
        **shapes.columns(view, "status", "text", "percent", "facts"),
        "model": view.merged_model,
        "file": dataclasses.asdict(view.file) if view.file else None,
        "address": view.pushed_to,
    }


def _job(request: HttpRequest, event_id: int, start: Callable[[Checkpoint], Run]) -> Status[dict[str, Any]]:
    with refusing(ContractError, QueueFull, where="model"):
        job = start(catalogue.model_for(request, event_id).checkpoint)
    return Status(201, shapes.run(queries.run_for(request, job.pk)))
