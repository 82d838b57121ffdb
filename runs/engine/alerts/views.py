"""The Alerts page, where admins see targets, their events and deliveries; and the dialog of a run's bell."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.platform.accounts.roles import admin_required, person
from controlplane.platform.http.form_pages import form_page
from runs.engine import queries
from runs.engine.alerts import delivery, following, formatting
from runs.engine.alerts.following import FollowForm, NotFollowed
from runs.engine.alerts.forms import TargetForm
from runs.engine.alerts.models import AlertDelivery, State, installations
from runs.engine.alerts.tasks import queue_delivery

MAX_SHOWN = 50


@never_cache
@admin_required
@require_http_methods(["GET", "POST"])
def alerts(request: HttpRequest) -> HttpResponse:
    form = TargetForm(request.POST or None, initial={"links_to": request.build_absolute_uri("/")})
    if request.method == "POST" and form.is_valid():
        target = form.save_by(person(request))
        messages.success(request, f"{target.name} is saved. Send a test to check that it arrives.")
        return redirect("alerts")
    context = {"targets": installations().select_related("by"), "form": form, **_deliveries()}
    return form_page(request, "engine/alerts/alerts.html", context)


@never_cache
@admin_required
@require_http_methods(["GET", "POST"])
def target(request: HttpRequest, target_id: int) -> HttpResponse:
    target = get_object_or_404(installations(), pk=target_id)
    form = TargetForm(request.POST or None, instance=target)
    if request.method == "POST" and form.is_valid():
        target = form.save_by(person(request))
        if not target.enabled:
            delivery.fail_waiting(target)
        messages.success(request, f"{target.name} is saved.")
        return redirect("alerts")
    name = installations().get(pk=target_id).name  # the stored name, not the submitted one
    context = {"target": target, "name": name, "form": form}
    return form_page(request, "engine/alerts/target.html", context)


@admin_required
@require_POST
def test(request: HttpRequest, target_id: int) -> HttpResponse:
    delivery.queue_test(get_object_or_404(installations(), pk=target_id))
    queue_delivery()
    return redirect("alerts")


@admin_required
@require_POST
def delete(request: HttpRequest, target_id: int) -> HttpResponse:
    target = get_object_or_404(installations(), pk=target_id)
    target.delete()
    messages.success(request, f"{target.name} is deleted.")
    return redirect("alerts")


@never_cache
@admin_required
@require_GET
def deliveries(request: HttpRequest) -> HttpResponse:
    return render(request, "engine/alerts/_deliveries.html", _deliveries())


@admin_required
@require_POST
def retry(request: HttpRequest, delivery_id: int) -> HttpResponse:
    if delivery.retry(get_object_or_404(AlertDelivery, pk=delivery_id)):
        queue_delivery()
    return redirect("alerts")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def follow(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Show or change the user's mail subscription to a run; posting `stop` ends it. The page handles browser
    notifications."""
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


def _deliveries() -> dict[str, object]:
    rows = list(AlertDelivery.objects.select_related("target", "event__run")[:MAX_SHOWN])
    now = timezone.now()
    recent = [(row, formatting.line(row, "", now)) for row in rows]
    waits = any(row.state == State.WAITING for row in rows)
    return {"deliveries": recent, "shown": MAX_SHOWN, "kept": delivery.MAX_KEPT, "poll_s": 1 if waits else 10}
