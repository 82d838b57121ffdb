"""What was deleted lately: list, restore, delete for good. Deleting and renaming are with each kind's own routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Path, Status

from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from runs.api.access import Problem, Router, refusing
from runs.api.shapes import PageResponse, RequestBody, ResponseBody
from runs.engine.trash import deleting, naming, purging
from runs.engine.trash.kinds import KINDS, DeletableKind

router = Router(tags=["recently deleted"])
Thing = Annotated[Literal["run", "dataset", "reward", "environment", "profile"], Path()]
Key = Annotated[str, Path(max_length=40)]


class Name(RequestBody):
    name: str = Field(max_length=200, description="The new name. Links go by ids and stay.")


class Restored(ResponseBody):
    name: str
    """What it is called now."""
    says: str
    """What had to change, such as the name if somebody has taken it meanwhile; "": nothing."""


@router.get("deleted", response=PageResponse)
def deleted(request: HttpRequest) -> Any:
    """List what was deleted lately.

    The newest first. `purge_at`: until then it can be restored. `waits_for`: what a deletion for good waits for."""
    return {"items": [_item(kind, row) for kind, row in deleting.deleted()], "next_cursor": ""}


@router.post("deleted/{thing}/{key}/restore", response=Restored)
def restore(request: HttpRequest, thing: Thing, key: Key) -> Any:
    """Restore what was deleted. With what went with it: a run's jobs, and its dataset."""
    kind = KINDS[thing]
    with refusing(deleting.NotRestorable, where=thing):
        row, says = deleting.restore(kind, kind.key(key), person(request))
    return {"name": row.name, "says": says}


@router.delete("deleted/{thing}/{key}", response={204: None})
def delete_for_good(request: HttpRequest, thing: Thing, key: Key) -> Any:
    """Delete for good.

    What is in the list, before its time: its files go as soon as its hosts and the store are in reach."""
    kind = KINDS[thing]
    if not deleting.for_good(kind, kind.key(key)):
        raise Http404(f"There is no deleted {kind.one} {key}.")
    return Status(204, None)


def mark(kind: DeletableKind, pk: Any, user: User) -> Any:
    """The answer to DELETE of one. Raises Problem."""
    try:
        deleting.delete(kind, pk, user)
    except deleting.NotDeletable as error:
        raise Problem(409, str(error), where=kind.slug) from None
    return Status(204, None)


def rename(kind: DeletableKind, row: Any, name: str, user: User) -> None:
    """Raises Problem."""
    with refusing(naming.NameRefused, where="name", status=422):
        naming.rename(kind, row, name, user)


def _item(kind: DeletableKind, row: Any) -> dict[str, Any]:
    now = timezone.now()
    restorable = row.can_be_restored(now)
    return {
        "kind": kind.slug,
        "id": row.pk,
        "name": row.name,
        "deleted_at": row.deleted_at,
        "deleted_by": row.deleted_by.get_username() if row.deleted_by else "",
        "purge_at": row.purge_at,
        "restorable": restorable,
        "waits_for": "" if restorable else purging.waits_for(row, now),
    }
