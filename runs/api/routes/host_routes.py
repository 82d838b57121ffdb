"""Hosts, warm servers and the queue."""

from functools import partial
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Status

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.prices import MAX_PRICE, PriceForm
from controlplane.catalogue.hardware.queries import host_for, hosts_for, known_host_for
from controlplane.catalogue.joining import codes, credentials, host_redis
from controlplane.catalogue.joining.models import JoinCode
from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Problem, Router, refusing, row_or_404
from runs.api.shapes import Id, ItemResponse, ListResponse, RequestBody, ResponseBody
from runs.engine import disk, queries, sentences
from runs.engine.hosts import actions
from runs.engine.hosts.view import host_views
from runs.engine.models import Attempt, Lease
from runs.engine.scheduling import gpu_queue, reordering, stopping
from runs.engine.warm import lifecycle
from runs.engine.warm import overview as warm
from runs.engine.warm.overview import WarmLine
from runs.pages.hosts.joining_views import AddHostForm, no_users
from runs.pages.served.keyed_views import AddressForm

router = Router(tags=["hosts"])


class HostChange(RequestBody):
    draining: bool | None = Field(None, description="If true, the host accepts no more runs.")
    gpu_hour_price: Annotated[float, Field(ge=0, le=MAX_PRICE)] | None = Field(
        None, description="Admins only. Price of a GPU-hour. null means no price."
    )
    currency: str = Field("", max_length=Host.CURRENCY_LENGTH, description="Currency of the price, such as $ or CHF.")
    serve_address: str | None = Field(
        None,
        max_length=64,
        description="Admins only. Address that served models may listen on. If null, only 127.0.0.1.",
    )
    unsandboxed_allowed: bool | None = Field(
        None, description="Admins only. If true, rewards may run code on the host without a sandbox."
    )


class NewCode(RequestBody):
    name: str = Field("", max_length=64, description="The host's name. If empty, the machine's hostname.")


class Code(ResponseBody):
    id: int
    """The code's id. The code itself appears only in `command`."""
    name: str
    """The host's name. If empty, the machine's hostname."""
    command: str
    """The command to run on the new machine. Empty in all responses but the first."""
    expires_at: Any
    """When the code expires."""
    used_at: Any
    """When a machine joined with the code. null if none has."""
    used_by: str
    """The host that joined with the code. Empty if none has."""


class Release(RequestBody):
    resources: list[Annotated[str, Field(max_length=64)]] = Field(
        min_length=1, max_length=200, description="Resources such as gpu:0, from the host's `quarantined`."
    )


class ReleaseResponse(ResponseBody):
    released: list[str]
    """The quarantined resources that runs can use again, such as `gpu:0` or `port:21000`."""


class RevokeResponse(ResponseBody):
    ended: int
    """Number of the host's runs that were ended."""
    note: str
    """What remains to be done by hand. Empty if nothing."""


class QueueMove(RequestBody):
    put: Literal["first", "before", "after"]
    other: str = Field("", max_length=64, description="The id of the run that it is moved before or after.")


class GiveUp(RequestBody):
    free: bool = False
    """true: also release the host's resources, because its processes have certainly ended."""


class GiveUpResponse(ResponseBody):
    ended: int
    """Number of the host's runs that were ended. They failed with `host_lost`."""
    released: int
    """Number of the host's resources that were released; 0 unless `free` was sent."""


@router.get("hosts", response=ListResponse)
def hosts(request: HttpRequest) -> Any:
    """List hosts."""
    return {"items": [shapes.host(view) for view in host_views(hosts_for(request))]}


@router.get("hosts/{int:host_id}", response=ItemResponse)
def host(request: HttpRequest, host_id: Id) -> Any:
    """Read a host."""
    return _response(request, host_id)


@router.get("hosts/{int:host_id}/disk", response=ItemResponse)
def disk_of_host(request: HttpRequest, host_id: Id) -> Any:
    """Read the disk use of runs on a host, in bytes as the host measured it. `biggest` lists the largest runs."""
    [view] = host_views([host_for(request, host_id)])
    disk_usage = disk.of_hosts(limit=50).get(host_id)
    runs = [
        {"run": row.run_id, "name": row.run.name, "deleted": row.run.deleted_at is not None, "bytes": row.bytes}
        for row in (disk_usage.biggest if disk_usage else ())
    ]
    sizes = {"total_mib": view.disk_total_mib, "free_mib": view.disk_free_mib}
    item = {
        **sizes,
        "bytes": disk_usage.bytes if disk_usage else None,
        "runs": disk_usage.runs if disk_usage else None,
        "biggest": runs,
    }
    return {"item": item}


@router.patch("hosts/{int:host_id}", response=ItemResponse)
def change(request: HttpRequest, host_id: Id, payload: HostChange) -> Any:
    """Drain or change a host. Fields that aren't sent keep their values. All changes are made, or none."""
    host, user, sent_fields = host_for(request, host_id), person(request), payload.dict(exclude_unset=True)
    if (for_admins := set(sent_fields) - {"draining"}) and not user.may_administer:
        raise Problem(403, "Only admins can change this.", where=min(for_admins), fix="Send an admin's token.")
    if {"gpu_hour_price", "currency"} & set(sent_fields):
        price = shapes.columns(host, "gpu_hour_price", "currency")
        price |= {name: sent_fields[name] for name in price if name in sent_fields}
        form_values.fill(partial(PriceForm, instance=host), price)
    if "serve_address" in sent_fields:
        form_values.fill(partial(AddressForm, instance=host), {"serve_address": sent_fields["serve_address"]})
    host.save(update_fields=sorted(set(sent_fields) & {"gpu_hour_price", "currency", "serve_address"}))
    if sent_fields.get("unsandboxed_allowed") is not None:
        actions.allow_unsandboxed(host, user, allowed=sent_fields["unsandboxed_allowed"])
    if sent_fields.get("draining") is not None:
        actions.drain(host, draining=sent_fields["draining"])
    return _response(request, host_id)


@router.post("hosts/join-codes", response={201: Code})
def new_code(request: HttpRequest, payload: NewCode) -> Any:
    """Create a join code. It works once. The response contains the command to run on the new machine."""
    if problem := host_redis.problem() or no_users():
        raise Problem(409, problem, where="host")
    form = form_values.fill(AddHostForm, payload.dict())
    row, code = codes.create(form.cleaned_data["name"], by=person(request))
    return Status(201, _code(row) | {"command": codes.command(request.build_absolute_uri("/"), code)})


@router.get("hosts/join-codes/{int:code_id}", response=Code)
def join_code(request: HttpRequest, code_id: Id) -> Any:
    """Read whether a join code was used, and by which host."""
    return _code(row_or_404(JoinCode.objects.all(), code_id, "There is no join code"))


@router.post("hosts/{int:host_id}/revoke", response=RevokeResponse)
def revoke(request: HttpRequest, host_id: Id) -> Any:
    """Revoke a host's credentials. The host is locked out at once and its runs end."""
    host = known_host_for(request, host_id)
    if credentials.active(host.name) is None:
        raise Problem(409, f"{host.name} has no credentials.", where="host")
    ended_count, note = actions.revoke(host, person(request))
    return {"ended": ended_count, "note": note}


@router.post("hosts/{int:host_id}/release", response=ReleaseResponse)
def release(request: HttpRequest, host_id: Id, payload: Release) -> Any:
    """Release quarantined resources. First check on the host that nothing is using them."""
    leases = Lease.objects.filter(host=host_for(request, host_id), state=Lease.QUARANTINED)
    matches = [lease for lease in leases.select_related("host", "attempt__run") if lease.resource in payload.resources]
    return {"released": actions.release(matches, person(request))}


@router.post("hosts/{int:host_id}/give-up", response=GiveUpResponse)
def give_up(request: HttpRequest, host_id: Id, payload: GiveUp) -> Any:
    """Declare an unreachable host lost, which ends its runs."""
    host = host_for(request, host_id)
    if host.is_fresh(timezone.now()):
        raise Problem(409, f"{host.name} is reachable. Stop its runs instead.", where="host")
    ended_count, released_count = actions.give_up(host, person(request), free=payload.free)
    return {"ended": ended_count, "released": released_count}


@router.delete("hosts/{int:host_id}", response={204: None})
def remove(request: HttpRequest, host_id: Id) -> Any:
    """Remove an unreachable host from the list until it reports again."""
    if problem := actions.remove(host_for(request, host_id)):
        raise Problem(409, problem, where="host")
    return Status(204, None)


@router.get("queue", response=ListResponse)
def queue(request: HttpRequest) -> Any:
    """List the queued runs in order."""
    queued_attempts = gpu_queue.queued_attempts().select_related("run__owner", "machine", "waits_on__owner")
    return {"items": [_queue_item(attempt, position) for position, attempt in enumerate(queued_attempts, start=1)]}


@router.post("queue/{slug:run_id}/move", response=ListResponse)
def move(request: HttpRequest, run_id: str, payload: QueueMove) -> Any:
    """Move a queued run. It gets the priority of its new place. To set only the priority, use PATCH /runs/{id}."""
    run = queries.run_for(request, run_id)
    with refusing(reordering.NotWaiting, where="run"):
        neighbour = {} if payload.put == "first" else {payload.put: queries.run_for(request, payload.other)}
        reordering.move_run(run, person(request), **neighbour)
    return queue(request)


@router.delete("queue/{slug:run_id}", response={204: None})
def unqueue(request: HttpRequest, run_id: str) -> Any:
    """Remove a run from the queue. If the run has already started, it keeps running."""
    run = queries.run_for(request, run_id)
    if not stopping.cancel(run.latest(), person(request)):
        raise Problem(409, f"{run.name} is not in the queue. Nothing was stopped.", where="run")
    return Status(204, None)


@router.get("warm-servers", response=ListResponse)
def warm_servers(request: HttpRequest) -> Any:
    """List warm servers: vLLM servers kept for their holder's next run with the same model and settings."""
    return {"items": [_warm(line) for line in warm.lines()]}


@router.post("warm-servers/{slug:run_id}/end", response=ItemResponse)
def end_warm_server(request: HttpRequest, run_id: str) -> Any:
    """End a warm server.

    An idle server ends at once, a busy one after the run that is using it. To end it together with that run, use
    POST /runs/{id}/stop with the server's id."""
    run = queries.run_for(request, run_id)
    line = warm.line_of(run)
    if line is None or not lifecycle.end(line.row, person(request)):
        raise Problem(409, f"{run.name} is not a warm server or is already ending.", where="run")
    line.row.refresh_from_db(fields=["leaving", "used_by"])
    return {"item": _warm(line)}


def _warm(line: WarmLine) -> dict[str, Any]:
    return {
        "run": line.run.pk,
        "model": line.model,
        "revision": line.run.spec["model"].get("revision") or "",
        "holder": line.run.owner.get_username(),
        "host": line.attempt.host.name if line.attempt.host else "",
        "gpus": list(line.attempt.gpus),
        "state": line.state,
        "used_by": line.user.pk if line.user else "",
        "idle_since": line.row.idle_since,
        "ends_at": line.stops_at,
        "keep_warm_minutes": line.row.minutes,
        "ends_after_its_run": bool(line.user and line.row.leaving),
    }


def _code(row: JoinCode) -> dict[str, Any]:
    columns = shapes.columns(row, "used_by", "expires_at", "used_at")
    return {"id": row.pk, "name": row.host_name, "command": "", **columns}


def _queue_item(attempt: Attempt, position: int) -> dict[str, Any]:
    return {
        "place": position,
        "run": attempt.run_id,
        "name": attempt.run.name,
        "owner": attempt.run.owner.get_username(),
        "priority": attempt.priority,
        "waits_for": str(sentences.waiting(attempt) or ""),
    }


def _response(request: HttpRequest, host_id: int) -> dict[str, Any]:
    [view] = host_views([host_for(request, host_id)])
    for_admins = {"serve_address": view.row.serve_address} if person(request).may_administer else {}
    return {"item": shapes.host(view) | for_admins}
