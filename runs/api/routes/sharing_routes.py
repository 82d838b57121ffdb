"""Sharing: links for people without an account, reports, and e-mail about a run."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Field, Query, Status

from controlplane.platform.accounts.roles import person
from runs.api import shapes
from runs.api.access import Problem, Router, refusing, row_or_404
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
    with_completions: bool = Field(False, description="If true, also show the newest prompts and completions.")


class Follow(RequestBody):
    mail: str = Field(max_length=254, description="An e-mail address.")


class FollowResponse(ResponseBody):
    mail: str
    """The masked address. Empty if no e-mail is sent."""
    problem: str
    """Why the last e-mail could not be sent. Empty if it was sent."""


class LinkResponse(ResponseBody):
    item: dict[str, Any]
    """The link without its token, as in the list of links."""
    address: str
    """The URL with the token. It is never shown again."""


@router.get("runs/{slug:run_id}/report")
def run_report(request: HttpRequest, run_id: str, smooth: Smooth = SMOOTHING) -> HttpResponse:
    """Download a report on a run as a .zip file.

    It contains Markdown with results, health, notes, evaluations and kill receipts, charts as SVG, and the spec as
    YAML."""
    return report_views.run_report(request, run_id)


@router.get("compare/report")
def compare_report(
    request: HttpRequest,
    runs: Annotated[str, Query(max_length=2000, description="Ids of runs, separated by commas.")],
    m: Annotated[
        str, Query("", max_length=5000, description="Names of metrics, separated by commas. If empty, the usual ones.")
    ] = "",
    x: Annotated[Literal["step", "tokens", "time", "hours"], Query(description="The axis of the curves.")] = "step",
    smooth: Smooth = SMOOTHING,
) -> HttpResponse:
    """Download a report that compares several runs as a .zip file.

    It contains differing settings, results, groups of runs that differ only in the seed with mean and spread, and
    overlaid curves as SVG."""
    if not comparison.chosen_runs(request).runs:
        raise Problem(404, "None of these runs exist.", where="runs", fix="GET /runs lists the runs.")
    return report_views.comparison_report(request)


@router.get("runs/{slug:run_id}/links", response=ListResponse)
def run_links(request: HttpRequest, run_id: str) -> Any:
    """List a run's open links."""
    return {"items": [_link(link) for link in links.open_links(queries.run_for(request, run_id))]}


@router.post("runs/{slug:run_id}/links", response={201: LinkResponse})
def new_link(request: HttpRequest, run_id: str, payload: NewLink) -> Any:
    """Create a link that shares a run.

    Until it expires, the link gives people without an account read-only access to the run's state, charts and
    health."""
    run, until = queries.run_for(request, run_id), timezone.now() + timedelta(days=payload.days)
    with refusing(links.NotShared, where="days"):
        link, token = links.create(run, person(request), until=until, with_completions=payload.with_completions)
    return Status(201, {"item": _link(link), "address": address_of(request, token)})


@router.delete("runs/{slug:run_id}/links/{int:link_id}", response=ItemResponse)
def revoke_link(request: HttpRequest, run_id: str, link_id: Id) -> Any:
    """Revoke a link to a run. If it was already revoked, nothing changes."""
    run = queries.run_for(request, run_id)
    rows = SharedLink.objects.filter(run=run).select_related("made_by")
    link = row_or_404(rows, link_id, f"{run.name} has no link")
    links.revoke(link, person(request))
    link.refresh_from_db(fields=["revoked_at"])
    return {"item": _link(link)}


@router.get("runs/{slug:run_id}/follow", response=FollowResponse)
def followed(request: HttpRequest, run_id: str) -> Any:
    """Read which address receives e-mail about a run for the token's user."""
    follower = following.of(queries.run_for(request, run_id), person(request))
    return {"mail": follower.to, "problem": follower.problem}


@router.put("runs/{slug:run_id}/follow", response=FollowResponse)
def follow(request: HttpRequest, run_id: str, payload: Follow) -> Any:
    """Send e-mail about a run to an address.

    E-mail is sent when the run ends or fails and when its health needs attention. A new address replaces the previous
    one."""
    run, form = queries.run_for(request, run_id), following.FollowForm({"mail": payload.mail})
    if not form.is_valid():
        raise Problem(422, " ".join(map(str, form.errors["mail"])), where="mail")
    with refusing(following.NotFollowed, where="mail"):
        following.follow(run, person(request), form.cleaned_data["mail"], request.build_absolute_uri("/"))
    return followed(request, run_id)


@router.delete("runs/{slug:run_id}/follow", response=FollowResponse)
def unfollow(request: HttpRequest, run_id: str) -> Any:
    """Stop e-mail about a run."""
    following.unfollow(queries.run_for(request, run_id), person(request))
    return followed(request, run_id)


def _link(link: SharedLink) -> dict[str, Any]:
    fields = shapes.columns(link, "with_completions", "created_at", "expires_at", "opened_at", "revoked_at")
    return {"id": link.pk, "made_by": link.made_by.get_username(), **fields}
