"""Events: the actions of users in this installation."""

from datetime import date
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Schema

from controlplane.platform.accounts.roles import person
from controlplane.platform.activity import queries
from controlplane.platform.activity.models import KINDS
from controlplane.platform.activity.queries import ActFilter, ShownAct
from runs.api import shapes
from runs.api.access import Problem, Router
from runs.api.shapes import Cursor, Limit, PageResponse, Text

router = Router(tags=["events"])


class EventFilter(Schema):
    q: Text = Field("", description="Words in the object's name or in the action.")
    by: Text = Field("", description="A user's name.")
    kind: Text = Field("", description=f"One of: {', '.join(KINDS)}.")
    key: Text = Field("", description="The object's id; also send its kind.")
    since: date | None = Field(None, description="First day, in UTC.")
    until: date | None = Field(None, description="Last day, in UTC.")


@router.get("events", response=PageResponse)
def events(request: HttpRequest, filters: Query[EventFilter], cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the actions of users, newest first.

    Admin tokens list all of them, other tokens those that every user may see and your own."""
    if filters.kind and filters.kind not in KINDS:
        raise Problem(422, "There is no such kind of object.", where="kind", fix=f"Use one of: {', '.join(KINDS)}.")
    user = person(request)
    matching_acts = queries.matching(queries.acts_for(user), ActFilter(**filters.dict()))
    acts, next_cursor = shapes.rows_after(matching_acts, cursor, limit, by="at")
    return {"items": [_event(event) for event in queries.with_addresses(acts, user)], "next_cursor": next_cursor}


def _event(activity: ShownAct) -> dict[str, Any]:
    act = activity.act
    return {
        "id": act.pk,
        "by": act.by_name,
        **shapes.columns(act, "at", "token", "kind", "key", "name", "what"),
        "page": activity.address,
    }
