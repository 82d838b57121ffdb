"""The shapes of the API's requests and answers, and rows as JSON."""

from collections.abc import Callable, Mapping
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
from runs.launch.preflight.finding import Finding

MOST = 200
CURSOR_FIX = "Send the next_cursor of the page before."
BAD_CURSOR = "This cursor can't be read."
Id = Annotated[int, Field(ge=1, le=2**53)]
Cursor = Annotated[str, Query("", max_length=300, description="The next_cursor of the page before.")]
RowCursor = Annotated[str, Query("", max_length=12, description="The next_cursor of the page before.")]
"""A cursor that is a row's number."""
Limit = Annotated[int, Query(50, ge=1, le=MOST, description="Entries of a page.")]
Text = Annotated[str, Field("", max_length=100)]
Key = Annotated[str, Header(max_length=200, description="A repeated request with the same key does nothing twice.")]
Value = str | int | float | bool | None


class RequestBody(Schema):
    """The body of a request. Refuses unknown fields, so that a typo never becomes a default."""

    model_config = ConfigDict(extra="forbid")


class Archived(RequestBody):
    archived: bool


class ResponseBody(Schema):
    """The body of an answer. The text below a field describes it in the API's reference."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ListResponse(ResponseBody):
    """A list without pages."""

    items: list[dict[str, Any]]
    """All entries, in order."""


class PageResponse(ResponseBody):
    """A page of a list."""

    items: list[dict[str, Any]]
    """The entries of this page, in order."""
    next_cursor: str
    """Send it as `cursor` for the next page. Empty: this is the last one."""


class ItemResponse(ResponseBody):
    """A single object."""

    item: dict[str, Any]
    """The object, with the fields of an entry in its list."""


class RunResponse(ResponseBody):
    id: str
    """The run's id, as in addresses and other requests."""
    name: str
    """The run's name. Several runs may have the same one."""
    kind: str
    """`train`, `check` (of learnability), `trial` (of hardware profiles), `evaluation`, or work on a model, such as
    `merge` or `serve`."""
    owner: str
    """The name of the user who launched it."""
    status: Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]
    """The status of the latest attempt. The last three are final, unless the run is resumed."""
    reason: str
    """Why the latest attempt ended, such as `completed`, `stopped_by_user` or `oom`. Empty: it has not ended."""
    sentence: str
    """The state or the end reason, in words."""
    detail: str
    """Details from the host, such as the last error. Often empty."""
    attempt: int
    """The number of the latest attempt, from 1 on; each resume makes another."""
    host: str
    """The host of the latest attempt. Empty: none was chosen yet."""
    phase: str
    """The phase on its host, such as `fetching_model` or `vllm_starting`. Empty: it is not on a host."""
    step: int
    """Completed optimizer steps over all attempts."""
    max_steps: int | None
    """Optimizer steps at which training ends. null: not known before the trainer has started."""
    step_time: float | None
    """Duration of the last step in seconds. null: there was none."""
    eta_s: float | None
    """Seconds left at the pace of the last step. null: unknown, or it is not on a host."""
    reward: float | None
    """Mean total reward of the last reported step. null: none was reported."""
    health: str
    """`well`, `warning`, `bad`, or `unknown`: nothing could be judged yet."""
    findings: int
    """The number of health rules that are broken at present, without notes."""
    waits_for: str
    """The reason why a queued run waits, in words. Empty: it is not queued."""
    place: str
    """Its place in the queue, such as `2nd of 5`. Empty: it is not queued."""
    stop_requested: str
    """The requested stop: `save` (with a checkpoint) or `now`. Empty: none."""
    resumes_at: str | None
    """When it is resumed automatically. null: it is not."""
    created_at: str
    """When it was launched."""
    started_at: str | None
    """When the latest attempt began its work. null: not yet."""
    ended_at: str | None
    """When the latest attempt ended. null: not yet."""
    tags: list[str]
    """Its tags, in alphabetical order."""
    notes: str
    """People's notes, in Markdown."""
    archived: bool
    """True: only lists of archived runs include it."""
    warm_server: str
    """The id of the run whose warm vLLM server its latest attempt uses or used. Empty: none."""
    page: str
    """The path of its page."""


class RunsResponse(ResponseBody):
    items: list[RunResponse]
    """The runs of this page, the newest first."""
    next_cursor: str
    """Send it as `cursor` for the next page. Empty: this is the last one."""


def page(
    rows: QuerySet[M], shape: Callable[[M], Mapping[str, Any]], cursor: str, limit: int, *, by: str = ""
) -> dict[str, Any]:
    """Build the PageResponse after `cursor`: the rows in their `shape`, ordered as by `keyset.page`."""
    page_rows, after = rows_after(rows, cursor, limit, by=by)
    return {"items": [shape(row) for row in page_rows], "next_cursor": after}


def rows_after(rows: QuerySet[M], cursor: str, limit: int, *, by: str = "") -> tuple[list[M], str]:
    """Read the rows of a page and the next cursor, as `keyset.page`. Raises Problem if `cursor` can't be read."""
    with refusing(keyset.BadCursor, where="cursor", status=422, text=BAD_CURSOR, fix=f"{CURSOR_FIX[:-1]}, or none."):
        return keyset.page(rows, cursor, limit, by=by)


def number_of(cursor: RowCursor) -> int | None:
    """Read a cursor that is a row's number. None: it is empty. Raises Problem if it can't be read."""
    if cursor and not (cursor.isascii() and cursor.isdecimal()):
        raise Problem(422, BAD_CURSOR, where="cursor", fix=CURSOR_FIX)
    return int(cursor) if cursor else None


def columns(row: object, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def run(row: Run, places: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Describe a run by the fields of RunResponse. `places`: those in the queue, read once for a list of runs."""
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
    """Find the id of the run whose warm vLLM server an attempt uses or used. Empty: none."""
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
    """Describe an attempt's end with its kill receipt."""
    return {
        "attempt": attempt.number,
        "host": attempt.host.name if attempt.host else "",
        **columns(attempt, "status", "reason", "detail", "exit_codes", "started_at", "ended_at", "receipt"),
        "warm_server": warm_server(attempt),
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
