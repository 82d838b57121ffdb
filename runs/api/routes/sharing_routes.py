"""What leaves the installation: links for people without an account, reports, and mail about one run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Field, Query, Router, Status

from controlplane.platform.accounts.roles import person
from runs.api.access import OPERATE, READ, Problem
from runs.api.shapes import Answer, Asked, Id, Items, Told
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


class NewLink(Asked):
    days: Annotated[int, Field(ge=1, le=3650)] = 7
    with_completions: bool = Field(False, description="Show the newest prompts and completions, too.")


class Follow(Asked):
    mail: str = Field(max_length=254, description="One address.")


class Followed(Told):
    mail: str
    """Where mail goes, masked; empty: none is sent."""
    problem: str
    """Why the last one was not sent."""


class MadeLink(Told):
    item: dict[str, Any]
    """The link, as the list of links has it: without its token."""
    address: str
    """With the token; it is told only now."""


@router.get(
    "runs/{slug:run_id}/report", auth=READ, url_name="v1_run_report", summary="Download a report of a run as a .zip"
)
def run_report(request: HttpRequest, run_id: str, smooth: Smooth = SMOOTHING) -> HttpResponse:
    """Markdown with its figures, health, notes, evaluations and receipts; its charts as SVG; its spec as YAML."""
    return report_views.run_report(request, run_id)


@router.get(
    "compare/report", auth=READ, url_name="v1_compare_report", summary="Download a report of several runs as a .zip"
)
def compare_report(
    request: HttpRequest,
    runs: Annotated[str, Query(max_length=2000, description="Their ids, with commas between.")],
    m: Annotated[
        str, Query("", max_length=5000, description="Names of metrics, with commas between; empty: the usual ones.")
    ] = "",
    x: Annotated[Literal["step", "tokens", "time", "hours"], Query(description="The axis of the curves.")] = "step",
    smooth: Smooth = SMOOTHING,
) -> HttpResponse:
    """Differing settings, figures, groups by seed with mean and spread, and curves over each other as SVG."""
    if not comparison.chosen(request).runs:
        raise Problem(404, "There are no such runs.", where="runs", fix="GET /runs lists them.")
    return report_views.comparison_report(request)


@router.get(
    "runs/{slug:run_id}/links", auth=READ, response=Items, url_name="v1_run_links", summary="List a run's open links"
)
def run_links(request: HttpRequest, run_id: str) -> Any:
    return {"items": [_link(each) for each in links.open_links(queries.run_for(request, run_id))]}


@router.post(
    "runs/{slug:run_id}/links",
    auth=OPERATE,
    response={201: MadeLink},
    url_name="v1_run_links_new",
    summary="Share a run by a link",
)
def new_link(request: HttpRequest, run_id: str, payload: NewLink) -> Any:
    """Read-only, for people without an account, until it ends. It shows state, charts and health."""
    run, until = queries.run_for(request, run_id), timezone.now() + timedelta(days=payload.days)
    try:
        link, token = links.make(run, person(request), until=until, with_completions=payload.with_completions)
    except links.NotShared as error:
        raise Problem(409, str(error), where="days") from None
    return Status(201, {"item": _link(link), "address": address_of(request, token)})


@router.delete(
    "runs/{slug:run_id}/links/{int:link_id}",
    auth=OPERATE,
    response=Answer,
    url_name="v1_run_link_revoke",
    summary="Revoke a link to a run",
)
def revoke_link(request: HttpRequest, run_id: str, link_id: Id) -> Any:
    """The same answer if it was revoked before."""
    run = queries.run_for(request, run_id)
    link = SharedLink.objects.filter(pk=link_id, run=run).select_related("made_by").first()
    if link is None:
        raise Http404(f"{run.name} has no link {link_id}.")
    links.revoke(link, person(request))
    link.refresh_from_db(fields=["revoked_at"])
    return {"item": _link(link)}


@router.get(
    "runs/{slug:run_id}/follow",
    auth=READ,
    response=Followed,
    url_name="v1_run_follow",
    summary="Read where mail about a run goes",
)
def followed(request: HttpRequest, run_id: str) -> Any:
    """Of the token's user: others see nothing of it."""
    found = following.of(queries.run_for(request, run_id), person(request))
    return {"mail": found.to, "problem": found.problem}


@router.put(
    "runs/{slug:run_id}/follow",
    auth=OPERATE,
    response=Followed,
    url_name="v1_run_follow_new",
    summary="Send mail about a run",
)
def follow(request: HttpRequest, run_id: str, payload: Follow) -> Any:
    """When it ends or fails, and when its health needs attention. A second address replaces the first."""
    run, form = queries.run_for(request, run_id), following.FollowForm({"mail": payload.mail})
    if not form.is_valid():
        raise Problem(422, " ".join(map(str, form.errors["mail"])), where="mail")
    try:
        following.follow(run, person(request), form.cleaned_data["mail"], request.build_absolute_uri("/"))
    except following.NotFollowed as error:
        raise Problem(409, str(error), where="mail") from None
    return followed(request, run_id)


@router.delete(
    "runs/{slug:run_id}/follow",
    auth=OPERATE,
    response=Followed,
    url_name="v1_run_follow_end",
    summary="Send no more mail about a run",
)
def unfollow(request: HttpRequest, run_id: str) -> Any:
    following.unfollow(queries.run_for(request, run_id), person(request))
    return followed(request, run_id)


def _link(link: SharedLink) -> dict[str, int | str | bool | datetime | None]:
    return {
        "id": link.pk,
        "made_by": link.made_by.get_username(),
        "with_completions": link.with_completions,
        "created_at": link.created_at,
        "expires_at": link.expires_at,
        "opened_at": link.opened_at,
        "revoked_at": link.revoked_at,
    }
