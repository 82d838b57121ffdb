"""Runs: list, read, check, launch, stop, resume, tag, rename, delete."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Literal

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Schema, Status

from controlplane.platform import safe_yaml
from controlplane.platform.accounts.roles import person
from runs.api import drafts, shapes
from runs.api.access import Problem, Router, refusing
from runs.api.drafts import RunDocument
from runs.api.routes import trash_routes
from runs.api.shapes import Cursor, Id, Key, Limit, RequestBody, ResponseBody, RunResponse, RunsResponse, Text
from runs.engine import checkpoints, disk, queries, tags
from runs.engine.models import HealthPreset, Run
from runs.engine.scheduling import gpu_queue, launching, recovery, reordering, stopping
from runs.engine.scheduling.limits import QueueFull
from runs.engine.trash.kinds import KINDS as KINDS_OF_THINGS
from runs.insight.health import views as health_views
from runs.launch.preflight import choosing
from runs.pages.run_list.query import CHOICES, RunListQuery
from runs.pages.run_page import notes
from workers.contract.wire.names import StopMode

router = Router(tags=["runs"])


class LaunchResponse(ResponseBody):
    run: RunResponse
    """The run, launched by this request or an earlier one."""
    launched: bool
    """false if an earlier request with this Idempotency-Key launched the run."""
    findings: list[dict[str, Any]]
    """Preflight findings that don't stop the launch: `grade`, `field`, `cause`, `fix`, and `fixes` with values to
    send."""
    notes: list[dict[str, str]]
    """Parts of the document that were changed or left out: `verdict`, `key`, `text`."""


class GroupLaunchResponse(ResponseBody):
    tag: str
    """The tag that the runs share."""
    at_once: int | None
    """Maximum number of these runs on hosts at the same time. null means no limit."""
    runs: list[RunResponse]
    """One run for each combination of seed and grid values, in launch order."""


class Preflight(ResponseBody):
    launchable: bool
    """false if a finding of grade `stop` would make POST /runs or /run-groups refuse the launch."""
    findings: list[dict[str, Any]]
    """Preflight findings: `grade`, `field`, `cause`, `fix`, and `fixes` with values to send."""
    notes: list[dict[str, str]]
    """Parts of the document that would be changed or left out: `verdict`, `key`, `text`."""
    leads: dict[str, Any]
    """What the document names of data and rewards: `datasets` (ids on the hub), `rewards`, `unknown_rewards`, and
    `reward_config`, a YAML with the rewards, as the editor imports it."""
    time: dict[str, Any] | None
    """The expected time on `host`, or on a machine to be requested (`to_ask`): `step_s`, `seconds`, `gpu_hours`, and
    `cost` if the price of a GPU-hour is known. null if unknown."""
    asks: bool
    """true if a host is inspecting the model. Repeat the request after a second to get the result."""


class Profiles(ResponseBody):
    items: list[dict[str, Any]]
    """The profiles, best first. `fits` is true if the profile fits on some host, `why` says where or why not, and `set`
    contains the fields that select it."""


class Stop(RequestBody):
    mode: Literal["save", "now"] = Field("save", description="`save` writes a checkpoint first.")


class StopResponse(ResponseBody):
    changed: bool
    """false if a stop was already requested or the run has ended."""
    run: RunResponse
    """The run's current state. It ends once its host has stopped it."""


class Resume(RequestBody):
    checkpoint: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        None, description="The checkpoint's id. If null, the last checkpoint."
    )


class DiskUse(ResponseBody):
    hosts: list[dict[str, Any]]
    """Size of the run's folder on each `host`: `bytes`, and when the host measured it (`measured_at`)."""
    store: int
    """Size of the run's checkpoints in the artifact store, in bytes."""
    database: dict[str, int]
    """Estimated size in the database, in bytes: completions, chart points and logs."""


class RunChange(RequestBody):
    name: str | None = Field(None, max_length=200)
    add_tags: list[str] = Field([], max_length=50)
    remove_tags: list[str] = Field([], max_length=50)
    notes: str | None = Field(None, max_length=notes.MAX_CHARS, description="Notes on the run, in Markdown.")
    archived: bool | None = None
    priority: Literal["high", "normal", "low"] | None = None
    preset: Id | None = Field(None, description="The id of a preset of health checks. Reassesses the run.")


def _one_of(values: Iterable[str]) -> str:
    return f"One of: {', '.join(str(value) for value in values if value)}."


class RunFilter(Schema):
    q: Text = Field("", description="Words in the name, the id or the owner.")
    status: Text = Field("", description=_one_of(CHOICES["status"]))
    health: Text = Field("", description=_one_of(CHOICES["health"]))
    tag: Text = Field("", description="Runs with this tag.")
    by: Text = Field("", description="A user's name.")
    host: Text = Field("", description="A host's name.")
    kind: Text = Field("", description=f"{_one_of(CHOICES['kind'])} If empty, training runs.")
    archived: Text = Field("", description=f"{_one_of(CHOICES['archived'])} If empty, runs that aren't archived.")


@router.get("runs", response=RunsResponse)
def list_runs(request: HttpRequest, filters: Query[RunFilter], cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List runs, newest first."""
    values = filters.dict()
    for name, choices in CHOICES.items():
        if values[name] and values[name] not in choices:
            raise Problem(422, f"{values[name][:40]} is not a valid {name}.", where=name, fix=_one_of(choices))
    matching_runs = RunListQuery.of(values).matching(queries.runs_for(request))
    shape = partial(shapes.run, places=gpu_queue.positions())
    return shapes.page(matching_runs, shape, cursor, limit, by="created_at")


@router.post("runs", response={200: LaunchResponse, 201: LaunchResponse})
def launch(request: HttpRequest, payload: RunDocument, idempotency_key: Key = "") -> Any:
    """Launch a run.

    Preflight checks the run first, as on the page; if it stops the launch, the response is 422 with the findings.
    Repeating the request with the same Idempotency-Key returns 200 and the first run."""
    run, is_new, draft = drafts.launch(payload, person(request), idempotency_key)
    response = {**draft.response_fields(), "run": _response(request, run.pk), "launched": is_new}
    return Status(201 if is_new else 200, response)


@router.post("run-groups", response={200: GroupLaunchResponse, 201: GroupLaunchResponse})
def launch_group(request: HttpRequest, payload: RunDocument, idempotency_key: Key = "") -> Any:
    """Launch runs for several seeds or a grid of settings.

    `set` contains `seeds` (the number of seeds, counting up from the run's seed), `grid` (one setting per line, such as
    `learning_rate: 1e-6, 5e-6`) and `at_once`. Launches all runs or none. The Idempotency-Key works as for one run."""
    group, is_new = drafts.launch_several(payload, person(request), idempotency_key)
    rows = queries.runs_for(request).filter(group=group).order_by("created_at", "pk")
    places = gpu_queue.positions()
    response = {"tag": group.tag, "at_once": group.at_once, "runs": [shapes.run(row, places) for row in rows]}
    return Status(201 if is_new else 200, response)


@router.post("preflight", response=Preflight)
def preflight(request: HttpRequest, payload: RunDocument) -> Any:
    """Check a run without launching it."""
    draft = drafts.read(payload, person(request))
    return {**draft.response_fields(), "time": draft.expected_time(), "asks": draft.request_inspection()}


@router.post("preflight/profiles", response=Profiles)
def rank_profiles(request: HttpRequest, payload: RunDocument) -> Any:
    """Rank hardware profiles for a run, best first, saying of each whether and why it fits."""
    ranking = choosing.choices(drafts.read(payload, person(request)).checked.draft)
    return {"items": [{"name": row.name, "fits": row.fits, "why": row.why, "set": row.values} for row in ranking]}


@router.get("runs/{slug:run_id}", response=RunResponse)
def get_run(request: HttpRequest, run_id: str) -> Any:
    """Read a run."""
    return _response(request, run_id)


@router.patch("runs/{slug:run_id}", response=RunResponse)
def change(request: HttpRequest, run_id: str, payload: RunChange) -> Any:
    """Change a run's name, tags, notes, priority, preset or archiving. All changes are made, or none."""
    run, user = queries.run_for(request, run_id), person(request)
    preset = HealthPreset.objects.filter(pk=payload.preset).first() if payload.preset else None
    if payload.preset and preset is None:
        raise Problem(422, f"There is no preset {payload.preset}.", where="preset", fix="GET /presets lists them.")
    add = tags.parse(",".join(payload.add_tags))
    if problem := tags.too_long(",".join(payload.add_tags)):
        raise Problem(422, problem, where="add_tags")
    with transaction.atomic():
        if payload.priority is not None:
            with refusing(reordering.NotWaiting, where="priority", fix="Only queued runs have a priority to change."):
                reordering.set_priority(run, drafts.PRIORITIES[payload.priority], user)
        if payload.name is not None:
            trash_routes.rename(KINDS_OF_THINGS["run"], run, payload.name, user)
        if add or payload.remove_tags:
            tags.tag([run.pk], user, add, payload.remove_tags)
        if payload.notes is not None:
            notes.write(run, payload.notes, None, user)
        if payload.archived is not None:
            result = (tags.archive if payload.archived else tags.unarchive)([run.pk], user)
            if payload.archived and not result.changed and run.archived_at is None:
                fix = "Stop it first, or stop serving its model."
                raise Problem(409, f"{run.name} is active, so it can't be archived.", where="archived", fix=fix)
    if preset is not None:
        health_views.choose_for(run, preset)
    return _response(request, run_id)


@router.delete("runs/{slug:run_id}", response={204: None})
def delete(request: HttpRequest, run_id: str) -> Any:
    """Delete a run that has ended, with its jobs. It can be restored for a while: see /deleted."""
    return trash_routes.mark(KINDS_OF_THINGS["run"], queries.run_for(request, run_id).pk, person(request))


@router.get("runs/{slug:run_id}/disk", response=DiskUse)
def disk_use(request: HttpRequest, run_id: str) -> Any:
    """Read a run's disk use."""
    disk_usage = disk.of_run(queries.run_for(request, run_id))
    hosts = [{"host": name, "bytes": size, "measured_at": at} for name, size, at in disk_usage.hosts]
    database = {"completions": disk_usage.texts, "points": disk_usage.points, "logs": disk_usage.logs}
    return {"hosts": hosts, "store": disk_usage.store, "database": database}


@router.get("runs/{slug:run_id}/spec")
def spec(
    request: HttpRequest,
    run_id: str,
    format: Annotated[Literal["json", "yaml"], Query(description="The format of the response.")] = "json",  # noqa: A002
) -> Any:
    """Read a run's frozen spec as JSON or YAML. POST /runs accepts either format and launches the same run again."""
    run = queries.run_for(request, run_id)
    if format == "json":
        return run.spec
    return HttpResponse(as_yaml(run), content_type="application/yaml; charset=utf-8")


@router.post("runs/{slug:run_id}/stop", response=StopResponse)
def stop(request: HttpRequest, run_id: str, payload: Stop) -> Any:
    """Stop a run."""
    run = queries.run_for(request, run_id)
    has_changed = stopping.request_stop(run.latest(), StopMode(payload.mode), person(request))
    return {"changed": has_changed, "run": _response(request, run_id)}


@router.post("runs/{slug:run_id}/resume", response=RunResponse)
def resume(request: HttpRequest, run_id: str, payload: Resume) -> Any:
    """Resume a run from a checkpoint, by default the last one, or from the start if there is none."""
    run = queries.run_for(request, run_id)
    checkpoint = checkpoints.find(run, str(payload.checkpoint)) if payload.checkpoint else None
    if payload.checkpoint and (checkpoint is None or not checkpoint.usable):
        fix = "GET …/checkpoints lists the usable ones."
        raise Problem(409, "This checkpoint no longer exists.", where="checkpoint", fix=fix)
    with refusing(launching.NotResumable, QueueFull, where="run"):
        launching.resume(run, person(request), checkpoint)
    return _response(request, run_id)


@router.post("runs/{slug:run_id}/no-resume", response=RunResponse)
def no_resume(request: HttpRequest, run_id: str) -> Any:
    """Cancel the automatic resume of a run."""
    run = queries.run_for(request, run_id)
    if not recovery.cancel_planned(run, person(request).get_username()):
        raise Problem(409, f"{run.name} has no planned automatic resume.", where="run")
    return _response(request, run_id)


def as_yaml(run: Run) -> str:
    """Return the run's spec as YAML, with its current name."""
    return safe_yaml.dump({**run.spec, "name": run.name}, tuple(run.spec))


def _response(request: HttpRequest, run_id: str) -> dict[str, Any]:
    return shapes.run(queries.run_for(request, run_id))
