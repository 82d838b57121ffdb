"""Studies of runs: learnability checks, prompts by difficulty, differing settings, exports, inspections of models."""

import dataclasses
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from ninja import Field, Query, Status

from controlplane.catalogue.datasets import tokenizers
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.exchange import writing
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import ModelInspection
from controlplane.catalogue.hardware.queries import hosts_for
from controlplane.platform.accounts.roles import person
from controlplane.platform.http import tokens
from controlplane.platform.http.streams import file_response
from runs.api import drafts, shapes
from runs.api.access import Problem, Router, refusing, row_or_404
from runs.api.shapes import Id, ItemResponse, Limit, PageResponse, RequestBody, ResponseBody, RowCursor, RunResponse
from runs.engine import queries
from runs.engine.gateway import endpoint
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE
from runs.insight.comparing import comparison
from runs.insight.completions.difficulty import CLASSES, FIGURES, PromptChoice
from runs.launch.learnability import filtering, results
from runs.launch.new_run import dry_run, launching
from workers.contract.run.learnability import CHECK
from workers.contract.wire.documents import ContractError

router = Router(tags=["studies"])
FORMATS = "trl.yaml, axolotl.yaml, accelerate.yaml, or deepspeed.json for a run with ZeRO."
Format = Annotated[str, Query("trl.yaml", max_length=40, description=FORMATS)]


class Filter(RequestBody):
    low: Annotated[int, Field(ge=0, le=100)] = Field(
        description="Minimum percentage of completions that solve a prompt."
    )
    high: Annotated[int, Field(ge=0, le=100)] = Field(
        description="Maximum percentage of completions that solve a prompt."
    )


class Inspect(RequestBody):
    model: str = Field(min_length=1, max_length=500, description="A folder on the host, or a hub id.")
    revision: str = Field("", max_length=200, description="The revision of a hub model. If empty, the newest.")
    host: str = Field("", max_length=64, description="A host's name. If empty, any reachable host.")
    again: bool = Field(False, description="If true, inspect again even if there is a result.")


class Learnability(ResponseBody):
    verdict: dict[str, Any] | None
    """`grade` (good, warn or bad), `text` and `fix`. null if the run is not a check or has not ended."""
    result: dict[str, Any] | None
    """The measurements: shares from 0 to 1, lengths in tokens, times in seconds. null whenever `verdict` is."""


class Differences(ResponseBody):
    runs: list[str]
    """Ids of the runs, in the order of the values."""
    settings: list[dict[str, Any]]
    """The settings that differ: `name`, and `values` with a string for each run."""
    equal: int
    """Number of settings that don't differ."""


class Gateway(ResponseBody):
    url: str
    """The URL that agents connect to."""
    key: str
    """The bearer token for agents, valid only for this run."""
    live: bool
    """true if the run is currently accepting requests."""


@router.get("runs/{slug:run_id}/learnability", response=Learnability)
def learnability(request: HttpRequest, run_id: str) -> Any:
    """Read the result of a learnability check.

    To start a check, use POST /runs with `kind: check`."""
    run = queries.run_for(request, run_id)
    if run.kind != CHECK or run.latest().status in ACTIVE:
        return {"verdict": None, "result": None}
    with refusing(ContractError, where="run", message="The run's spec was written by another version: {}."):
        result = results.of_run(run)
    return {"verdict": dataclasses.asdict(results.verdict(result)), "result": dataclasses.asdict(result)}


@router.post("runs/{slug:run_id}/learnability/every-prompt", response={200: RunResponse, 201: RunResponse})
def check_every_prompt(request: HttpRequest, run_id: str) -> Any:
    """Launch a learnability check of every prompt with the settings of this check. Returns 200 if it was launched
    before."""
    run = queries.run_for(request, run_id)
    with refusing(ContractError, QueueFull, where="run", message="This can't be checked: {}."):
        form = launching.form_of(run)
        outcome = launching.check_every_prompt(run, form, person(request))
    if outcome.launched is None:
        drafts.raise_if_stopped(outcome.checks.findings, form)
        raise Problem(409, "Preflight stops the check.", where="run")
    response = shapes.run(queries.run_for(request, str(outcome.launched.pk)))
    return Status(201 if outcome.fresh else 200, response)


@router.post("runs/{slug:run_id}/learnability/filter", response={201: ItemResponse})
def filter_prompts(request: HttpRequest, run_id: str, payload: Filter) -> Any:
    """Create a dataset version that keeps only learnable prompts.

    The new version of the run's dataset omits prompts that are solved too rarely or too often."""
    run = queries.run_for(request, run_id)
    with refusing(DatasetError, where="low"):
        version = filtering.keep_solved(run, payload.low, payload.high, person(request))
    return Status(201, {"item": shapes.dataset_version(version)})


@router.get("runs/{slug:run_id}/prompts", response=PageResponse)
def prompts(
    request: HttpRequest,
    run_id: str,
    solved: Annotated[
        Literal["", "never", "sometimes", "always"],
        Query(description="Only prompts solved this often. If empty, all."),
    ] = "",
    visits: Annotated[int, Query(1, ge=1, le=10**6, description="Only prompts with at least this many visits.")] = 1,
    period: Annotated[
        Literal["", "run"], Query(description="With `run`, use all visits. If empty, only recent ones.")
    ] = "",
    cursor: RowCursor = "",
    limit: Limit = 50,
) -> Any:
    """List a run's prompts with how often each was solved, in the dataset's order."""
    after_row = shapes.parse_row_cursor(cursor)
    choice = PromptChoice((solved,) if solved else tuple(CLASSES), visits, period)
    rows = choice.of(queries.run_for(request, run_id)).filter(row__gt=-1 if after_row is None else after_row)
    page = list(rows.order_by("row")[: limit + 1])
    next_cursor = str(page[limit - 1].row) if len(page) > limit else ""
    return {"items": [shapes.columns(row, *FIGURES) for row in page[:limit]], "next_cursor": next_cursor}


@router.get("runs/{slug:run_id}/export")
def export(request: HttpRequest, run_id: str, format: Format = "trl.yaml") -> HttpResponse:  # noqa: A002
    """Export a run for another tool."""
    with refusing(ContractError, where="run", message="The run can't be exported: {}."):
        spec = spec_of(queries.run_for(request, run_id))
    files = {file.name: file for file in writing.formats(spec.hardware)}
    if format not in files:
        raise Problem(422, f"There is no format {format}.", where="format", fix=f"Use one of: {', '.join(files)}.")
    return HttpResponse(files[format].write(spec), content_type="text/plain; charset=utf-8")


@router.get("runs/{slug:run_id}/dry-run")
def run_dry_run(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Download a run as a .zip file that trains without the control plane. It contains commands, spec and dataset."""
    with refusing(dry_run.NothingToShow, ContractError, where="run", message="The dry run can't be created: {}"):
        dry = dry_run.of_run(queries.run_for(request, run_id))
        return file_response(request, dry_run.write(dry), "application/zip", save_as=f"{dry.file_name}.zip")


@router.get("compare", response=Differences)
def compare(
    request: HttpRequest,
    runs: Annotated[str, Query("", max_length=2000, description="Ids of runs, separated by commas.")] = "",
) -> Any:
    """Compare the settings of runs. For curves, see /runs/{id}/series; for evaluations, /runs/{id}/evaluations."""
    ids = [word for word in dict.fromkeys(runs.split(",")) if word][: comparison.MAX_RUNS]
    requested_runs = [queries.run_for(request, run_id) for run_id in ids]
    different, equal_count = comparison.differences(requested_runs)
    settings = [{"name": row.name, "values": [value.text for value in row.values]} for row in different]
    return {"runs": [run.pk for run in requested_runs], "settings": settings, "equal": equal_count}


@router.post("runs/{slug:run_id}/gateway-key", response=Gateway)
def gateway_key(request: HttpRequest, run_id: str) -> Any:
    """Read the key of a run's gateway, with which agents and Atropos environments connect to the run."""
    run = queries.run_for(request, run_id)
    gateway = endpoint.of(run)
    if gateway is None:
        raise Problem(409, "The run has no gateway.", where="run")
    return {"url": gateway.url, "key": tokens.gateway_key(run.pk), "live": gateway.live}


@router.post("inspections", response={202: ItemResponse})
def inspect(request: HttpRequest, payload: Inspect) -> Any:
    """Ask a host to inspect a model.

    The result says whether the host can use the model, and states the model's size and chat template. Read it from
    /inspections/{id}, which also names a tokenizer for counting tokens in a mapping."""
    hosts = [host for host in hosts_for(request) if payload.host in ("", host.name)]
    host = next((host for host in hosts if host.is_fresh(timezone.now())), None)
    if host is None:
        no_host = f"The host {payload.host} doesn't exist or is unreachable" if payload.host else "No host is reachable"
        raise Problem(409, f"{no_host}.", where="host", fix="GET /hosts lists the hosts.")
    with refusing(inspections.HostAway, where="host"):
        row = inspections.request_inspection(host, payload.model, revision=payload.revision, force=payload.again)
    return Status(202, {"item": _inspection(row)})


@router.get("inspections/{int:inspection_id}", response=ItemResponse)
def inspection(request: HttpRequest, inspection_id: Id) -> Any:
    """Read the result of a host's inspection of a model."""
    rows = ModelInspection.objects.select_related("host")
    return {"item": _inspection(row_or_404(rows, inspection_id, "There is no inspection"))}


def _inspection(row: ModelInspection) -> dict[str, Any]:
    stored_tokenizer = tokenizers.of_model(row.model, row.revision)
    return {
        "tokenizer": stored_tokenizer.pk if stored_tokenizer else "",
        "id": row.pk,
        "host": row.host.name,
        **shapes.columns(row, "model", "revision", "asked_at", "answered_at", "answer"),
        "overdue": inspections.is_overdue(row),
    }
