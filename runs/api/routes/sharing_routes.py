"""Sharing: links for people without an account, reports, and mail about a run."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Field, Query, Status

from controlplane.platform.accounts.roles import person
from runs.api import shapes
from runs.api.access import Problem, Router, existing, refusing
from runs.api.shapes import Id, ItemResponse, ListResponse, RequestBody, ResponseBody
from runs.engine import queries
from runs.engine.alerts import following
from runs.engine.sharing import links
from runs.engine.sharing.models import SharedLink
from runs.insight.comparing import comparison
from runs.pages.reports import views as report_views
from runs.pages.reports.charts import SMOOTHING
from runs.pages.sharing.views import address_of

router = Router(tags=["sharing"])
Smooth = Annotated[float, Query(ge=0, lt=1, description="Smoothing of the curves, as on the pages.")]


class NewLink(RequestBody):
    days: Annotated[int, Field(ge=1, le=3650)] = 7
    with_completions: bool = Field(False, description="true: also show the newest prompts and completions.")


class Follow(RequestBody):
    mail: str = Field(max_length=254, description="An e-mail address.")


class Followed(ResponseBody):
    mail: str
    """The masked address. Empty: no mail is sent."""
    problem: str
    """Why the last mail was not sent. Empty: it was."""


class MadeLink(ResponseBody):
    item: dict[str, Any]
    """The link, as in the list of links: without its token."""
    address: str
    """The address with the token. No later answer has it."""


@router.get("runs/{slug:run_id}/report")
def run_report(request: HttpRequest, run_id: str, smooth: Smooth = SMOOTHING) -> HttpResponse:
    """Download a report of a run as a .zip.

    Markdown with figures, health, notes, evaluations and receipts; charts as SVG; the spec as YAML."""
    return report_views.run_report(request, run_id)


@router.get("compare/report")
def compare_report(
    request: HttpRequest,
    runs: Annotated[str, Query(max_length=2000, description="Ids of runs with commas between.")],
    m: Annotated[
        str, Query("", max_length=5000, description="Names of metrics with commas between. Empty: the usual ones.")
    ] = "",
    x: Annotated[Literal["step", "tokens", "time", "hours"], Query(description="The axis of the curves.")] = "step",
    smooth: Smooth = SMOOTHING,
) -> HttpResponse:
    """Download a report of several runs as a .zip.

    Differing settings, figures, groups by seed with mean and spread, and overlaid curves as SVG."""
    if not comparison.chosen(request).runs:
        raise Problem(404, "There are no such runs.", where="runs", fix="GET /runs lists them.")
    return report_views.comparison_report(request)


@router.get("runs/{slug:run_id}/links", response=ListResponse)
def run_links(request: HttpRequest, run_id: str) -> Any:
    """List a run's open links."""
    return {"items": [_link(link) for link in links.open_links(queries.run_for(request, run_id))]}


@router.post("runs/{slug:run_id}/links", response={201: MadeLink})
def new_link(request: HttpRequest, run_id: str, payload: NewLink) -> Any:
    """Share a run by a link.

    Read-only, for people without an account, until the link expires. It shows state, charts and health."""
    run, until = queries.run_for(request, run_id), timezone.now() + timedelta(days=payload.days)
    with refusing(links.NotShared, where="days"):
        link, token = links.create(run, person(request), until=until, with_completions=payload.with_completions)
    return Status(201, {"item": _link(link), "address": address_of(request, token)})


@router.delete("runs/{slug:run_id}/links/{int:link_id}", response=ItemResponse)
def revoke_link(request: HttpRequest, run_id: str, link_id: Id) -> Any:
    """Revoke a link to a run. The same answer if it was revoked before."""
    run = queries.run_for(request, run_id)
    rows = SharedLink.objects.filter(run=run).select_related("made_by")
    link = existing(rows, link_id, f"{run.name} has no link")
    links.revoke(link, person(request))
    link.refresh_from_db(fields=["revoked_at"])
    return {"item": _link(link)}


@router.get("runs/{slug:run_id}/follow", response=Followed)
def followed(request: HttpRequest, run_id: str) -> Any:
    """Read where mail about a run goes. Only the mail of the token's user."""
    follower = following.of(queries.run_for(request, run_id), person(request))
    return {"mail": follower.to, "problem": follower.problem}


@router.put("runs/{slug:run_id}/follow", response=Followed)
def follow(request: HttpRequest, run_id: str, payload: Follow) -> Any:
    """Send mail about a run.

    When it ends or fails, and when its health needs attention. A new address replaces the previous one."""
    run, form = queries.run_for(request, run_id), following.FollowForm({"mail": payload.mail})
    if not form.is_valid():
        raise Problem(422, " ".join(map(str, form.errors["mail"])), where="mail")
    with refusing(following.NotFollowed, where="mail"):
        following.follow(run, person(request), form.cleaned_data["mail"], request.build_absolute_uri("/"))
    return followed(request, run_id)


@router.delete("runs/{slug:run_id}/follow", response=Followed)
def unfollow(request: HttpRequest, run_id: str) -> Any:
    """Stop mail about a run."""
    following.unfollow(queries.run_for(request, run_id), person(request))
    return followed(request, run_id)


def _link(link: SharedLink) -> dict[str, Any]:
    same = shapes.columns(link, "with_completions", "created_at", "expires_at", "opened_at", "revoked_at")
    return {"id": link.pk, "made_by": link.made_by.get_username(), **same}
