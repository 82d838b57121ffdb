"""Hosts and the queue, and who is asking."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Schema, Status

from controlplane.accounts.models import ApiToken
from controlplane.accounts.roles import person
from controlplane.hardware.queries import host_for, hosts_for
from runs import sentences
from runs.api import shapes
from runs.api.access import OPERATE, READ, Problem
from runs.api.shapes import Answer, Asked, Id
from runs.hosts import actions
from runs.hosts.cards import host_views
from runs.models import Attempt
from runs.scheduling import launching, queueing

router = Router(tags=["hosts"])


class Me(Schema):
    user: str
    role: str
    token: str
    scope: str
    expires_at: str


class Items(Schema):
    items: list[dict[str, Any]]


class Drain(Asked):
    draining: bool


class GiveUp(Asked):
    free: bool = False
    """Release its resources as well: its processes are certainly gone."""


class GivenUp(Schema):
    ended: int
    released: int


@router.get("me", auth=READ, response=Me, url_name="v1_me", summary="Whose token this is")
def me(request: HttpRequest) -> Any:
    token: ApiToken = request.auth  # type: ignore[attr-defined]  # set by the guard
    return {
        "user": token.user.get_username(),
        "role": token.user.role,
        "token": token.name,
        "scope": token.scope,
        "expires_at": token.expires_at.isoformat(),
    }


@router.get("hosts", auth=READ, response=Items, url_name="v1_hosts", summary="List hosts")
def hosts(request: HttpRequest) -> Any:
    return {"items": [shapes.host(view) for view in host_views(hosts_for(request))]}


@router.get("hosts/{int:host_id}", auth=READ, response=Answer, url_name="v1_host", summary="A host")
def host(request: HttpRequest, host_id: Id) -> Any:
    return _answer(request, host_id)


@router.patch("hosts/{int:host_id}", auth=OPERATE, response=Answer, url_name="v1_host_change", summary="Drain a host")
def drain(request: HttpRequest, host_id: Id, payload: Drain) -> Any:
    """A draining host accepts no more runs."""
    row = host_for(request, host_id)
    row.draining = payload.draining
    row.save(update_fields=["draining"])
    if not row.draining:
        launching.dispatch_ready()
    return _answer(request, host_id)


@router.post(
    "hosts/{int:host_id}/give-up", auth=OPERATE, response=GivenUp, url_name="v1_host_give_up", summary="Give up"
)
def give_up(request: HttpRequest, host_id: Id, payload: GiveUp) -> Any:
    """Declare a host that is out of reach lost: its runs end."""
    row = host_for(request, host_id)
    if row.is_fresh(timezone.now()):
        raise Problem(409, f"{row.name} is in reach. Stop its runs instead.", where="host")
    ended, released = actions.give_up(row, person(request), free=payload.free)
    return {"ended": ended, "released": released}


@router.delete(
    "hosts/{int:host_id}", auth=OPERATE, response={204: None}, url_name="v1_host_remove", summary="Remove a host"
)
def remove(request: HttpRequest, host_id: Id) -> Any:
    """Hide a host that is out of reach, until it announces itself again."""
    if problem := actions.remove(host_for(request, host_id)):
        raise Problem(409, problem, where="host")
    return Status(204, None)


@router.get("queue", auth=READ, response=Items, url_name="v1_queue", summary="The queue, in its order")
def queue(request: HttpRequest) -> Any:
    waiting = queueing.waiting().select_related("run__owner", "machine", "waits_on__owner")
    return {"items": [_line(attempt, place) for place, attempt in enumerate(waiting, start=1)]}


def _line(attempt: Attempt, place: int) -> dict[str, Any]:
    owner = attempt.run.owner.get_username()
    return {
        "place": place,
        "run": attempt.run_id,
        "name": attempt.run.name,
        "owner": owner,
        "priority": attempt.priority,
        "waits_for": str(sentences.waiting(attempt) or ""),
    }


def _answer(request: HttpRequest, host_id: int) -> dict[str, Any]:
    return {"item": shapes.host(host_views([host_for(request, host_id)])[0])}
