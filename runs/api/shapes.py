"""Schemas shared by the API's requests and responses, and the JSON representations of rows."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from ninja import Header, Query, Schema
from pydantic import ConfigDict, Field

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.models import Version
from controlplane.platform.http import keyset
from controlplane.platform.http.keyset import M
from runs.api.access import Problem, refusing
from runs.engine import queries
from runs.engine.checkpoints import Checkpoint
from runs.engine.hosts.view import HostView
from runs.engine.models import Attempt, Run
from runs.insight import diagnosis
from runs.launch.preflight.finding import Finding

MAX_LIMIT = 200
CURSOR_FIX = "Send the next_cursor of the previous page."
BAD_CURSOR = "This cursor is not valid."
Id = Annotated[int, Field(ge=1, le=2**53)]
Cursor = Annotated[str, Query("", max_length=300, description="The next_cursor of the previous page.")]
RowCursor = Annotated[str, Query("", max_length=12, description="The next_cursor of the previous page.")]
"""A cursor that is a row's number."""
Limit = Annotated[int, Query(50, ge=1, le=MAX_LIMIT, description="Maximum number of entries per page.")]
Text = Annotated[str, Field("", max_length=100)]
Key = Annotated[str, Header(max_length=200, description="A repeated request with the same key has no further effect.")]
Value = str | int | float | bool | None


class RequestBody(Schema):
    """Base of request bodies. Unknown fields are refused, so that a typo never selects a default."""

    model_config = ConfigDict(extra="forbid")


class ArchiveChange(RequestBody):
    archived: bool


class ResponseBody(Schema):
    """Base of response bodies. The docstring below a field is its description in the API reference."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ListResponse(ResponseBody):
    """A complete list."""

    items: list[dict[str, Any]]
    """All entries, in order."""


class PageResponse(ResponseBody):
    """One page of a list."""

    items: list[dict[str, Any]]
    """The entries of this page, in order."""
    next_cursor: str
    """The `cursor` of the next page. Empty if this is the last page."""


class ItemResponse(ResponseBody):
    """A single object."""

    item: dict[str, Any]
    """The object, with the same fields as in the list of its kind."""


class RunResponse(ResponseBody):
    id: str
    """The run's id, as used in URLs and other requests."""
    name: str
    """The run's name. It need not be unique."""
    kind: str
    """`train`, `check` (of learnability), `trial` (of a hardware profile), `evaluation`, or a job on a model, such as
    `merge` or `serve`."""
    owner: str
    """The name of the user who launched the run."""
    status: Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]
    """The status of the latest attempt. The last three are final unless the run is resumed."""
    reason: str
    """Why the latest attempt ended, such as `completed`, `stopped_by_user` or `oom`. Empty if it has not ended."""
    sentence: str
    """The state, or the reason why the run ended, as a sentence."""
    detail: str
    """Details from the host, such as the last error. Often empty."""
    attempt: int
    """The number of the latest attempt, counting from 1. Each resume starts a new attempt."""
    host: str
    """The host of the latest attempt. Empty if none has been chosen yet."""
    phase: str
    """The phase on its host, such as `fetching_model` or `vllm_starting`. Empty if the run is not on a host."""
    step: int
    """Number of optimizer steps completed in all attempts."""
    max_steps: int | None
    """Optimizer step at which training ends. null until the trainer has started."""
    step_time: float | None
    """Duration of the last step in seconds. null if no step has been completed."""
    eta_s: float | None
    """Remaining seconds at the pace of the last step. null if unknown or if the run is not on a host."""
    reward: float | None
    """Mean total reward of the last reported step. null if none has been reported."""
    health: str
    """`well`, `warning`, `bad`, or `unknown` if no rule could be checked yet."""
    findings: int
    """Number of health rules that are currently broken, not counting notes."""
    waits_for: str
    """What a queued run is waiting for, as a sentence. Empty if the run is not queued."""
    place: str
    """The run's place in the queue, such as `2nd of 5`. Empty if the run is not queued."""
    stop_requested: str
    """The requested way of stopping: `save` (write a checkpoint first) or `now`. Empty if no stop was requested."""
    resumes_at: str | None
    """When the run will be resumed automatically. null if no automatic resume is planned."""
    created_at: str
    """When the run was launched."""
    started_at: str | None
    """When the latest attempt started. null if it has not started."""
    ended_at: str | None
    """When the latest attempt ended. null if it has not ended."""
    tags: list[str]
    """The run's tags, in alphabetical order."""
    notes: str
    """Users' notes on the run, in Markdown."""
    archived: bool
    """Whether the run is archived. Archived runs appear only in lists of archived runs."""
    warm_server: str
    """The id of the run whose warm vLLM server the latest attempt uses or used. Empty if none."""
    page: str
    """The path of the run's page."""


class RunsResponse(ResponseBody):
    items: list[RunResponse]
    """The runs of this page, newest first."""
    next_cursor: str
    """The `cursor` of the next page. Empty if this is the last page."""


def page(
    rows: QuerySet[M], to_response: Callable[[M], Mapping[str, Any]], cursor: str, limit: int, *, by: str = ""
) -> dict[str, Any]:
    """Return the PageResponse after `cursor`, with rows converted by `to_response` and ordered as by `keyset.page`."""
    page_rows, next_cursor = rows_after(rows, cursor, limit, by=by)
    return {"items": [to_response(row) for row in page_rows], "next_cursor": next_cursor}


def rows_after(rows: QuerySet[M], cursor: str, limit: int, *, by: str = "") -> tuple[list[M], str]:
    """Return a page's rows and the next cursor, as `keyset.page` does. Raises Problem if `cursor` is not valid."""
    with refusing(keyset.BadCursor, where="cursor", status=422, message=BAD_CURSOR, fix=f"{CURSOR_FIX[:-1]}, or none."):
        return keyset.page(rows, cursor, limit, by=by)


def parse_row_cursor(cursor: RowCursor) -> int | None:
    """Return the row number in a cursor, or None if the cursor is empty. Raises Problem if it is not a number."""
    if cursor and not (cursor.isascii() and cursor.isdecimal()):
        raise Problem(422, BAD_CURSOR, where="cursor", fix=CURSOR_FIX)
    return int(cursor) if cursor else None


def columns(row: object, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def run(row: Run, places: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the fields of RunResponse for a run. `places` are the places in the queue, read once for many runs."""
    summary = queries.summary(row, positions=places)
    return {
        **summary,
        "owner": row.owner.get_username(),
        "health": summary["health"]["verdict"],
        "findings": summary["health"]["count"],
        "tags": row.tags,
        "notes": row.notes,
        "archived": row.archived_at is not None,
        "warm_server": warm_server(row.latest()),
        "page": f"/runs/{row.pk}/",
    }


def warm_server(attempt: Attempt) -> str:
    """Return the id of the run whose warm vLLM server an attempt uses or used, or "" if none."""
    server = (attempt.placement or {}).get("warm")
    return str(server["attempt_id"]).rpartition("-")[0] if server else ""


def finding(row: Finding) -> dict[str, Any]:
    return {
        "grade": row.grade.value,
        **columns(row, "field", "cause", "fix"),
        "fixes": [columns(fix, "label", "values") for fix in row.fixes],
        "detail": row.detail,
    }


def receipt(attempt: Attempt) -> dict[str, Any]:
    """Return how an attempt ended, with its kill receipt and the diagnosis of its failure."""
    return {
        "attempt": attempt.number,
        "host": attempt.host.name if attempt.host else "",
        **columns(attempt, "status", "reason", "detail", "exit_codes", "started_at", "ended_at", "receipt"),
        "warm_server": warm_server(attempt),
        "diagnosis": asdict(report) if (report := diagnosis.of_attempt(attempt)) else None,
    }


def checkpoint(row: Checkpoint) -> dict[str, Any]:
    host = row.event.attempt.host
    return {
        "id": row.event.pk,
        "run": row.run.pk,
        **columns(row, "step", "name", "kind"),
        "host": host.name if host else "",
        **columns(row, "folder", "path"),
        "bytes": row.event.data.get("bytes"),
        "saved_at": row.event.at,
        **columns(row, "usable", "stored"),
    }


def dataset_version(version: DatasetVersion) -> dict[str, Any]:
    report = version.report if isinstance(version.report, dict) else {}
    error = report.get("file_error") or (report.get("mapped") or {}).get("file_error") or {}
    return {
        "dataset": version.dataset_id,
        "name": version.dataset.name,
        "version": version.number,
        "id": version.pk,
        "problem": error.get("message", ""),
        "file": version.file_name,
        "archived": version.archived_at is not None,
        **columns(version, "status", "rows", "validation_rows", "columns", "mapping", "bytes", "sha256", "created_at"),
    }


def reward_version(version: RewardVersion) -> dict[str, Any]:
    return _item_version(version) | columns(version, "aggregation", "failed_share", "components")


def environment_version(version: EnvironmentVersion) -> dict[str, Any]:
    return _item_version(version) | columns(version, "parts", "limits")


def _item_version(version: Version) -> dict[str, Any]:
    item = version.item
    return {
        version.kind.item: item.pk,
        "name": item.name,
        "description": item.description,
        "version": version.number,
        "id": version.pk,
        "note": version.note,
        "archived": item.archived_at is not None,
    }


def host(view: HostView) -> dict[str, Any]:
    return {
        "id": view.row.pk,
        "name": view.name,
        "in_reach": view.fresh,
        **columns(view.row, "draining", "unsandboxed_allowed", "gpu_hour_price", "currency"),
        "announced_at": view.announced_at,
        "gpus": [
            {
                **columns(gpu, "index", "name", "memory_mib", "used_mib"),
                "held_by": gpu.holder.run_id if gpu.holder else "",
            }
            for gpu in view.gpus
        ],
        "cpu_slots": len(view.slots),
        "cpu_slots_free": sum(slot.holder is None for slot in view.slots),
        **columns(view, "memory_mib", "disk_free_mib"),
        "models": list(view.models),
        "versions": view.versions,
        "quarantined": [resource for resource, _ in view.quarantined],
    }
