"""Administration: users, secrets and alert targets. Every route requires an admin token."""

from functools import partial
from typing import Annotated, Any, Literal

from django.db import transaction
from django.http import HttpRequest
from ninja import Field, Status

from controlplane.platform.accounts import managing, onetime
from controlplane.platform.accounts.forms import NewUserForm
from controlplane.platform.accounts.models import Secret, User
from controlplane.platform.accounts.roles import person
from controlplane.platform.accounts.secret_forms import MAX_KEY_LENGTH, SecretForm
from runs.api import form_values, shapes
from runs.api.access import ADMIN, Problem, Router, refusing, row_or_404
from runs.api.shapes import Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody, ResponseBody
from runs.engine.alerts import delivery
from runs.engine.alerts.forms import MAX_ADDRESS_CHARS, TargetForm
from runs.engine.alerts.models import AlertDelivery, AlertTarget, installations
from runs.engine.alerts.tasks import queue_delivery
from runs.pages.secrets import uses

router = Router(tags=["administration"])
MAX_RUNS = 2**31 - 1


class NewUser(RequestBody):
    username: str = Field(max_length=150)
    role: Literal["viewer", "operator", "admin"] = "viewer"


class InvitationResponse(ResponseBody):
    item: dict[str, Any]
    """The user, as in the list of users."""
    link: str
    """A link that signs this user in once. It is never shown again."""


class UserChange(RequestBody):
    role: Literal["viewer", "operator", "admin"] | None = None
    active: bool | None = Field(None, description="false disables the user and revokes the API tokens permanently.")
    max_running: Annotated[int, Field(ge=0, le=MAX_RUNS)] | None = Field(
        None, description="Maximum number of active runs. 0 means no limit, null the installation's limit."
    )
    max_queued: Annotated[int, Field(ge=0, le=MAX_RUNS)] | None = Field(
        None, description="Maximum number of queued runs. 0 means no limit, null the installation's limit."
    )


class NewSecret(RequestBody):
    name: str = Field(max_length=40, description="Capital letters, digits and _. Use HF_TOKEN for the model hub.")
    kind: Literal["endpoint", "hub", "store"] = "endpoint"
    address: str = Field("", max_length=500, description="The only address that the key is sent to.")
    private_too: bool = Field(False, description="If true, the address may be inside the private network.")
    key: str = Field("", max_length=MAX_KEY_LENGTH, description="Stored encrypted; never part of a response.")


class SecretChange(RequestBody):
    name: str | None = Field(None, max_length=40)
    address: str | None = Field(None, max_length=500, description="To change the address, send the key again.")
    private_too: bool | None = None
    key: str = Field("", max_length=MAX_KEY_LENGTH, description="If empty, the stored key is kept.")


Wants = list[Literal["bad", "warning", "failed", "succeeded", "stopped"]]


class NewTarget(RequestBody):
    name: str = Field(max_length=80)
    kind: Literal["webhook", "mail"] = "webhook"
    address: str = Field(
        max_length=MAX_ADDRESS_CHARS, description="A webhook's URL, or e-mail addresses separated by commas."
    )
    wants: Wants = Field(["bad", "failed"], min_length=1, max_length=5)
    links_to: str = Field("", max_length=300, description="The base URL of links. If empty, the URL of this request.")
    private_too: bool = False
    enabled: bool = True


class TargetChange(RequestBody):
    name: str | None = Field(None, max_length=80)
    kind: Literal["webhook", "mail"] | None = None
    address: str | None = Field(None, max_length=MAX_ADDRESS_CHARS)
    wants: Wants | None = Field(None, min_length=1, max_length=5)
    links_to: str | None = Field(None, max_length=300)
    private_too: bool | None = None
    enabled: bool | None = None


@router.get("users", auth=ADMIN, response=PageResponse)
def users(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List users."""
    return shapes.page(User.objects.all(), _user, cursor, limit)


@router.post("users", auth=ADMIN, response={201: InvitationResponse})
def new_user(request: HttpRequest, payload: NewUser) -> Any:
    """Invite a user."""
    user = form_values.fill(NewUserForm, payload.dict()).save(commit=False)
    user.set_unusable_password()
    user.save()
    return Status(201, {"item": _user(user), "link": onetime.invite(user, request.build_absolute_uri("/"))})


@router.patch("users/{int:user_id}", auth=ADMIN, response=ItemResponse)
def change_user(request: HttpRequest, user_id: Id, payload: UserChange) -> Any:
    """Change a user. Fields that aren't sent keep their values. `role` and `active` change together or not at all."""
    user, sent_fields = _user_for(user_id), payload.dict(exclude_unset=True)
    with refusing(managing.NotAllowed, where="user"), transaction.atomic():
        if sent_fields.get("role") is not None:
            managing.set_role(user.pk, sent_fields["role"])
        if sent_fields.get("active") is not None:
            managing.set_active(user.pk, person(request), active=sent_fields["active"])
    if limits := {name: value for name, value in sent_fields.items() if name.startswith("max_")}:
        user = _user_for(user_id)
        for name, value in limits.items():
            setattr(user, name, value)
        managing.save_limits(user)
    return {"item": _user(_user_for(user_id))}


@router.post("users/{int:user_id}/link", auth=ADMIN, response={201: InvitationResponse})
def link(request: HttpRequest, user_id: Id) -> Any:
    """Create a sign-in link for a user, such as one whose invitation has expired or who forgot the password."""
    user = _user_for(user_id)
    if not user.is_active:
        raise Problem(409, f"{user.get_username()} is disabled.", where="user", fix="Enable the account first.")
    return Status(201, {"item": _user(user), "link": onetime.invite(user, request.build_absolute_uri("/"))})


@router.get("secrets", auth=ADMIN, response=PageResponse)
def secrets(request: HttpRequest) -> Any:
    """List secrets with their uses, but without keys."""
    return {"items": [_secret(view) for view in uses.secret_views()], "next_cursor": ""}


@router.post("secrets", auth=ADMIN, response={201: ItemResponse})
def new_secret(request: HttpRequest, payload: NewSecret) -> Any:
    """Store a secret."""
    row = form_values.fill(SecretForm, payload.dict()).save_by(person(request))
    return Status(201, {"item": _secret_of(row.pk)})


@router.patch("secrets/{int:secret_id}", auth=ADMIN, response=ItemResponse)
def change_secret(request: HttpRequest, secret_id: Id, payload: SecretChange) -> Any:
    """Change a secret. Runs use it from their next start."""
    row = _secret_for(secret_id)
    form = form_values.fill(partial(SecretForm, instance=row), payload.dict(exclude_none=True))
    form.save_by(person(request))
    return {"item": _secret_of(row.pk)}


@router.delete("secrets/{int:secret_id}", auth=ADMIN, response={204: None})
def delete_secret(request: HttpRequest, secret_id: Id) -> Any:
    """Delete a secret. Runs that start later don't receive it."""
    _secret_for(secret_id).delete()
    return Status(204, None)


@router.get("alerts", auth=ADMIN, response=PageResponse)
def alerts(request: HttpRequest) -> Any:
    """List alert targets. Their addresses are masked."""
    return {"items": [_target(row) for row in installations().select_related("by")], "next_cursor": ""}


@router.post("alerts", auth=ADMIN, response={201: ItemResponse})
def new_target(request: HttpRequest, payload: NewTarget) -> Any:
    """Add an alert target."""
    values = payload.dict() | {"links_to": payload.links_to or request.build_absolute_uri("/")}
    return Status(201, {"item": _target(form_values.fill(TargetForm, values).save_by(person(request)))})


@router.patch("alerts/{int:target_id}", auth=ADMIN, response=ItemResponse)
def change_target(request: HttpRequest, target_id: Id, payload: TargetChange) -> Any:
    """Change an alert target. Fields that aren't sent keep their values."""
    bound = partial(TargetForm, instance=_target_for(target_id))
    target = form_values.fill(bound, payload.dict(exclude_none=True)).save_by(person(request))
    if not target.enabled:
        delivery.fail_waiting(target)
    return {"item": _target(target)}


@router.delete("alerts/{int:target_id}", auth=ADMIN, response={204: None})
def delete_target(request: HttpRequest, target_id: Id) -> Any:
    """Delete an alert target."""
    _target_for(target_id).delete()
    return Status(204, None)


@router.post("alerts/{int:target_id}/test", auth=ADMIN, response={202: ItemResponse})
def test(request: HttpRequest, target_id: Id) -> Any:
    """Send a test alert to a target. The response is the delivery; GET /alerts/deliveries shows its later state."""
    queued_delivery = delivery.queue_test(_target_for(target_id))
    queue_delivery()
    return Status(202, {"item": _delivery(queued_delivery)})


@router.get("alerts/deliveries", auth=ADMIN, response=PageResponse)
def deliveries(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List alert deliveries."""
    return shapes.page(AlertDelivery.objects.select_related("target", "event"), _delivery, cursor, limit)


@router.post("alerts/deliveries/{int:delivery_id}/again", auth=ADMIN, response=ItemResponse)
def again(request: HttpRequest, delivery_id: Id) -> Any:
    """Retry an alert delivery that was given up."""
    row = row_or_404(AlertDelivery.objects.select_related("target", "event"), delivery_id, "There is no delivery")
    if not delivery.retry(row):
        raise Problem(409, "The delivery has not been given up, so it can't be retried.", where="delivery")
    queue_delivery()
    row.refresh_from_db()
    return {"item": _delivery(row)}


def _user_for(user_id: int) -> User:
    return row_or_404(User.objects.all(), user_id, "There is no user")


def _secret_for(secret_id: int) -> Secret:
    return row_or_404(Secret.objects.all(), secret_id, "There is no secret")


def _target_for(target_id: int) -> AlertTarget:
    return row_or_404(installations(), target_id, "There is no target")


def _user(user: User) -> dict[str, Any]:
    return {
        "id": user.pk,
        "active": user.is_active,
        "last_sign_in": user.last_login,
        **shapes.columns(user, "username", "role", "max_running", "max_queued"),
    }


def _secret_of(pk: int) -> dict[str, Any]:
    return next(_secret(view) for view in uses.secret_views() if view.row.pk == pk)


def _secret(view: uses.SecretView) -> dict[str, Any]:
    row = view.row
    return {
        "id": row.pk,
        "problem": view.trouble,
        **shapes.columns(row, "name", "kind", "address", "private_too", "updated_at", "used_at"),
        "reward_configs": [config.name for config in view.configs],
        "runs": [attempt.run_id for attempt in view.attempts],
    }


def _target(row: AlertTarget) -> dict[str, Any]:
    fields = shapes.columns(row, "name", "kind", "wants", "links_to", "private_too", "enabled")
    return {"id": row.pk, "address": row.shown, **fields}


def _delivery(row: AlertDelivery) -> dict[str, Any]:
    return {
        "id": row.pk,
        "target": row.target.name,
        "run": row.event.run_id if row.event else "",
        **shapes.columns(row, "state", "tries", "error", "due_at"),
    }
