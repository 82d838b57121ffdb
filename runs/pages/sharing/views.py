"""Shared links of a run: the page for creating and revoking them, and the public pages behind them."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from functools import wraps
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.form_pages import form_page, keep_once, take_once
from controlplane.platform.http.keyset import split_list
from runs.engine import queries
from runs.engine.models import Run
from runs.engine.sharing import links
from runs.engine.sharing.models import SharedLink
from runs.insight.metrics import views as metrics_views
from runs.pages.sharing import content

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}
UNKNOWN = "The address may be mistyped or incomplete, or the link ended long ago."
DAYS = (1, 7, 30)
OWN_EXPIRY = "date"


class ShareForm(forms.Form):
    lasts = forms.ChoiceField(label="The link ends", widget=forms.RadioSelect)
    date = forms.DateField(
        label="Last day",
        required=False,
        help_text="The link ends at the end of this day, in UTC.",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    with_completions = forms.BooleanField(
        label="Include completions",
        required=False,
        help_text="Shows the newest prompts and completions, with their rewards. They may contain private data.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        max_days = settings.SHARE_MAX_DAYS
        day_choices = [(str(days), f"in {days} day{'s' if days > 1 else ''}") for days in DAYS if days <= max_days]
        self.fields["lasts"].choices = [*day_choices, (OWN_EXPIRY, "on a day of my choice")]  # type: ignore[attr-defined]
        self.fields["lasts"].initial = next((days for days, _ in day_choices if days == "7"), OWN_EXPIRY)
        today = timezone.now().date()
        bounds = {"min": today.isoformat(), "max": (today + timedelta(days=max_days - 1)).isoformat()}
        self.fields["date"].widget.attrs.update(bounds)

    def clean(self) -> dict[str, Any]:
        super().clean()
        data: dict[str, Any] = self.cleaned_data
        now = timezone.now()
        if data.get("lasts") == OWN_EXPIRY and "date" in data:
            try:
                data["until"] = _end_of(data["date"], now)
            except ValidationError as error:
                self.add_error("date", error)
        elif data.get("lasts"):
            data["until"] = now + timedelta(days=int(data["lasts"]))
        return data


def _end_of(day: Any, now: datetime) -> datetime:
    if day is None:
        raise ValidationError("Enter the last day.")
    end = datetime.combine(day, time.max, UTC)
    if end <= now:
        raise ValidationError("This day is over. Enter today or a later day.")
    if end > now + timedelta(days=settings.SHARE_MAX_DAYS):
        raise ValidationError(f"A link lasts at most {settings.SHARE_MAX_DAYS} days. Enter an earlier day.")
    return end


# --- pages for signed-in users ------------------------------------------------------------------------------------


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def share(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    form = ShareForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        if not person(request).may_operate:
            raise PermissionDenied(
                "Creating a link requires the operator role. Ask an admin of this installation for it."
            )
        if form.is_valid():
            until, with_completions = form.cleaned_data["until"], form.cleaned_data["with_completions"]
            try:
                _, token = links.create(run, person(request), until=until, with_completions=with_completions)
                keep_once(request, f"link to {run.pk}", address_of(request, token))
                return redirect("run_share", run.pk)
            except links.NotShared as error:
                form.add_error(None, str(error))
    context = {
        "run": run,
        "form": form,
        "address": "".join(take_once(request, f"link to {run.pk}")),
        "links": links.open_links(run),
        "may_operate": person(request).may_operate,
        "obstacle": _obstacle(run, may_operate=person(request).may_operate),
    }
    return form_page(request, "pages/sharing/share.html", context)


def _obstacle(run: Run, *, may_operate: bool) -> str:
    if not may_operate:
        return "Only operators can create and revoke links."
    if not settings.SHARE_MAX_DAYS:
        return "Sharing is turned off in this installation."
    return "The run is archived. Unarchive it to share it." if run.archived_at else ""


@require_POST
@operator_required
def revoke(request: HttpRequest, run_id: str, link_id: int) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    if links.revoke(get_object_or_404(SharedLink, pk=link_id, run=run), person(request)):
        messages.success(request, "The link was revoked. Its page now says that it has ended.")
    else:
        messages.info(request, "The link has already been revoked.")
    return redirect("run_share", run.pk)


def address_of(request: HttpRequest, token: str) -> str:
    return request.build_absolute_uri(reverse("shared", args=[token]))


# --- public pages behind a link -----------------------------------------------------------------------------------

LinkView = Callable[[HttpRequest, SharedLink, str], HttpResponse]


def _by_link(view: LinkView) -> Callable[[HttpRequest, str], HttpResponse]:
    """Wrap a view so that it gets the link of a valid token and responds without regard to sessions."""

    @login_not_required
    @require_safe
    @wraps(view)
    def by_link(request: HttpRequest, token: str) -> HttpResponse:
        link = links.find(token)
        if link is None:
            response = _closed_response(request, 404, "No such link", UNKNOWN)
        elif reason := links.end_reason(link):
            response = _closed_response(request, 410, "This link has ended", reason)
        else:
            links.record_opening(link)
            response = view(request, link, token)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    return by_link


@_by_link
def shared(request: HttpRequest, link: SharedLink, token: str) -> HttpResponse:
    return render(request, "pages/sharing/shared.html", content.page(link, content.run_of(link), token))


@_by_link
def shared_now(request: HttpRequest, link: SharedLink, token: str) -> HttpResponse:
    """Render the parts that change, which the page swaps in."""
    return render(request, "pages/sharing/_now.html", {**content.now(link, content.run_of(link)), "parts": True})


@_by_link
def shared_series(request: HttpRequest, link: SharedLink, token: str) -> HttpResponse:
    """Send points of the run's charts, in the format of a run's page."""
    run, requested_names = content.run_of(link), split_list(request.GET.get("metrics", ""))
    names = [name for name in content.metrics(run) if not requested_names or name in requested_names]
    return metrics_views.points_of(request, run, names)


def _closed_response(request: HttpRequest, status: int, title: str, reason: str) -> HttpResponse:
    return render(request, "pages/sharing/ended.html", {"title": title, "reason": reason}, status=status)
