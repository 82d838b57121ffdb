"""Deleted objects: list, restore, delete permanently. Also `mark` and `rename`, for the routes of each kind."""

from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Path, Status

from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from runs.api.access import Router, refusing
from runs.api.shapes import PageResponse, RequestBody, ResponseBody
from runs.engine.trash import deleting, naming, purging
from runs.engine.trash.kinds import KINDS, DeletableKind

router = Router(tags=["recently deleted"])
Kind = Annotated[Literal["run", "dataset", "reward", "environment", "profile"], Path(alias="thing")]
Key = Annotated[str, Path(max_length=40)]


class Name(RequestBody):
    name: str = Field(max_length=200, description="The new name. Links use ids and keep working.")


class RestoreResponse(ResponseBody):
    name: str
    """The object's current name."""
    says: str
    """What changed, such as the name if the old one was taken since the deletion. Empty if nothing changed."""


@router.get("deleted", response=PageResponse)
def deleted(request: HttpRequest) -> Any:
    """List recently deleted objects, newest first.

    An object can be restored until `purge_at`. `waits_for` says what its permanent deletion is waiting for."""
    return {"items": [_item(kind, row) for kind, row in deleting.deleted_rows()], "next_cursor": ""}


@router.post("deleted/{thing}/{key}/restore", response=RestoreResponse)
def restore(request: HttpRequest, slug: Kind, key: Key) -> Any:
    """Restore a deleted object and everything deleted with it. For a run, these are its jobs and its dataset."""
    kind = KINDS[slug]
    with refusing(deleting.NotRestorable, where=slug):
        row, changes = deleting.restore(kind, kind.key(key), person(request))
    return {"name": row.name, "says": changes}


@router.delete("deleted/{thing}/{key}", response={204: None})
def delete_for_good(request: HttpRequest, slug: Kind, key: Key) -> Any:
    """Delete a deleted object permanently before its time.

    Its files are deleted as soon as the hosts and the store are reachable."""
    kind = KINDS[slug]
    if not deleting.purge_now(kind, kind.key(key)):
        raise Http404(f"There is no deleted {kind.label} {key}.")
    return Status(204, None)


def mark(kind: DeletableKind, pk: Any, user: User) -> Any:
    """Delete an object so that it can be restored, and return the response. Raises Problem if it can't be deleted."""
    with refusing(deleting.NotDeletable, where=kind.slug):
        deleting.delete(kind, pk, user)
    return Status(204, None)


def rename(kind: DeletableKind, row: Any, name: str, user: User) -> None:
    with refusing(naming.NameRefused, where="name", status=422):
        naming.rename(kind, row, name, user)


def _item(kind: DeletableKind, row: Any) -> dict[str, Any]:
    now = timezone.now()
    is_restorable = row.can_be_restored(now)
    return {
        "kind": kind.slug,
        "id": row.pk,
        "name": row.name,
        "deleted_at": row.deleted_at,
        "deleted_by": row.deleted_by.get_username() if row.deleted_by else "",
        "purge_at": row.purge_at,
        "restorable": is_restorable,
        "waits_for": "" if is_restorable else purging.waits_for(row, now),
    }
