"""Models: what runs have saved, what lies on the hosts, and what can be done with a saved one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router, Schema, Status

from controlplane.accounts.roles import person
from runs import checkpoints, deletions, queries
from runs.api import paging, shapes
from runs.api.access import OPERATE, READ, Problem
from runs.api.shapes import Answer, Asked, Cursor, Id, Limit, Listed, RunAnswer
from runs.checkpoints import Checkpoint
from runs.jobs import archiving, merging
from runs.model_pages import card, catalogue
from runs.models import Run, RunEvent
from runs.scheduling.limits import QueueFull
from workers.contract import ContractError, EventKind

router = Router(tags=["models"])


class Merge(Asked):
    dtype: Literal["", "float32"] = ""
    """Empty: as the base model."""


class Deletion(Schema):
    asked: bool
    """Its host deletes it and then says so."""


@router.get("models", auth=READ, response=Listed, url_name="v1_models", summary="List saved models")
def models(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """What runs have saved and still exists, the newest first."""
    saved = RunEvent.objects.filter(kind=EventKind.CHECKPOINT, run__archived_at=None).select_related("run")
    events, after = paging.page(saved, cursor, limit)
    by_run = {event.run_id: {each.event.pk: each for each in checkpoints.of_run(event.run)} for event in events}
    found = [by_run[event.run_id].get(event.pk) for event in events]
    return {"items": [shapes.checkpoint(each) for each in found if each and each.usable], "next_cursor": after}


@router.get("models/bases", auth=READ, response=Listed, url_name="v1_base_models", summary="List models on hosts")
def base_models(request: HttpRequest) -> Any:
    """As the hosts announce them."""
    found = [{"path": each.path, "host": each.host.name, "name": each.name} for each in catalogue.base_models("")]
    return {"items": found, "next_cursor": ""}


@router.get("models/{int:event_id}", auth=READ, response=Answer, url_name="v1_model", summary="A saved model")
def model(request: HttpRequest, event_id: Id) -> Any:
    return {"item": shapes.checkpoint(catalogue.model_for(request, event_id).checkpoint)}


@router.post(
    "models/{int:event_id}/merge", auth=OPERATE, response={201: RunAnswer}, url_name="v1_model_merge", summary="Merge"
)
def merge(request: HttpRequest, event_id: Id, payload: Merge) -> Any:
    """Put an adapter into its base, as a job; the one that is under way already, if there is one."""
    return _job(request, event_id, lambda one: merging.start(one, person(request), dtype=payload.dtype))


@router.post(
    "models/{int:event_id}/archive",
    auth=OPERATE,
    response={201: RunAnswer},
    url_name="v1_model_archive",
    summary="Bring it here",
)
def archive(request: HttpRequest, event_id: Id) -> Any:
    """Make an archive of it for a download from its page, as a job."""
    return _job(request, event_id, lambda one: archiving.start(one, person(request), card=card.text(one)))


@router.delete(
    "models/{int:event_id}", auth=OPERATE, response={202: Deletion}, url_name="v1_model_delete", summary="Delete"
)
def delete(request: HttpRequest, event_id: Id) -> Any:
    try:
        deletions.request(catalogue.model_for(request, event_id).checkpoint, person(request))
    except deletions.NotDeletable as error:
        raise Problem(409, str(error), where="model") from None
    return Status(202, {"asked": True})


def _job(request: HttpRequest, event_id: int, start: Callable[[Checkpoint], Run]) -> Status[dict[str, Any]]:
    try:
        job = start(catalogue.model_for(request, event_id).checkpoint)
    except (ContractError, QueueFull) as error:
        raise Problem(409, str(error), where="model") from None
    return Status(201, shapes.run(queries.run_for(request, job.pk)))
