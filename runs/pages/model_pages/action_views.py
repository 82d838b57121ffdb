"""Actions on a model: merge, convert, benchmark, download, delete."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.streams import resumable_answer
from runs.engine import deletions
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives, model_jobs
from runs.engine.scheduling.limits import QueueFull
from runs.pages.model_pages import card
from workers.contract.run.jobs import ARCHIVE
from workers.contract.wire.documents import ContractError


@require_POST
@operator_required
def merge(request: HttpRequest, event_id: int) -> HttpResponseBase:
    dtype = request.POST.get("dtype", "")
    return _start(request, event_id, "merged", lambda model: model_jobs.merge(model, person(request), dtype=dtype))


@require_POST
@operator_required
def convert(request: HttpRequest, event_id: int) -> HttpResponseBase:
    kind = request.POST.get("type", "")
    return _start(request, event_id, "converted", lambda model: model_jobs.convert(model, person(request), kind=kind))


@require_POST
@operator_required
def archive(request: HttpRequest, event_id: int) -> HttpResponseBase:
    def start(model: Checkpoint) -> object:
        return archives.start(model, person(request), card=card.text(model))

    return _start(request, event_id, "downloaded", start)


@require_POST
@operator_required
def benchmark(request: HttpRequest, event_id: int) -> HttpResponseBase:
    model = catalogue.model_for(request, event_id)
    examples = request.POST.get("limit", "").strip()
    limit = int(examples) if examples.isdecimal() and len(examples) < 10 else -1
    try:
        model_jobs.benchmark(model.checkpoint, person(request), tasks=request.POST.getlist("tasks"), limit=limit)
    except (ContractError, QueueFull) as error:
        messages.error(request, f"This can't be benchmarked: {error}")
    return redirect("model", event_id)


@require_POST
@operator_required
def delete(request: HttpRequest, event_id: int) -> HttpResponseBase:
    model = catalogue.model_for(request, event_id)
    try:
        deletions.request(model.checkpoint, person(request))
    except deletions.CheckpointNotDeletable as error:
        messages.error(request, f"This model was not deleted: {error}")
    return redirect("model", event_id)


@require_safe
def download(request: HttpRequest, event_id: int, job_id: str) -> HttpResponseBase:
    """Send the archive of a download job; interrupted downloads can be resumed."""
    model = catalogue.model_for(request, event_id)
    job = model.run.jobs.filter(pk=job_id, kind=ARCHIVE, spec__start_from=model.checkpoint.folder).first()
    stored_archive = archives.find(job) if job else None
    if job is None or stored_archive is None:
        raise Http404("This archive is no longer here. Start the download again on the model's page.")
    name = f"{archives.name_of(model.checkpoint)}.tar"
    etag = f'"{job.pk}-{stored_archive.size}"'
    return resumable_answer(request, stored_archive.path.open("rb"), "application/x-tar", save_as=name, etag=etag)


def _start(request: HttpRequest, event_id: int, done: str, start: Callable[[Checkpoint], object]) -> HttpResponseBase:
    """Start a job on a model. `done`: participle for the error message."""
    model = catalogue.model_for(request, event_id)
    try:
        start(model.checkpoint)
    except (ContractError, QueueFull) as error:
        messages.error(request, f"This can't be {done}: {error}")
    return redirect("model", event_id)
