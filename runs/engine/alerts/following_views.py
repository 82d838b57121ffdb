"""The dialog of a run's bell: browser notifications, which the page itself shows, and mail."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from controlplane.platform.accounts.roles import person
from controlplane.platform.http.form_pages import form_page
from runs.engine import queries
from runs.engine.alerts import following
from runs.engine.alerts.following import FollowForm, NotFollowed


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def follow(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """A part of the run's page; `stop` ends the mail."""
    run, user = queries.run_for(request, run_id), person(request)
    form = FollowForm(request.POST if request.method == "POST" else None)
    if "stop" in request.POST:
        following.unfollow(run, user)
        form = FollowForm()
    elif request.method == "POST" and form.is_valid():
        try:
            following.follow(run, user, form.cleaned_data["mail"], request.build_absolute_uri("/"))
        except NotFollowed as error:
            form.add_error(None, str(error))
    if request.method == "POST" and not request.headers.get("HX-Request") and not form.errors:
        return redirect("run", run.pk)
    form.initial["mail"] = following.usual_address(user)
    context = {"run": run, "form": form, "following": following.of(run, user), "no_server": following.NO_SERVER}
    return form_page(request, "engine/alerts/_follow.html", context)
