"""Pages of machine sources, for admins, and the release of machines, for operators."""

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.roles import admin_required, operator_required, person
from controlplane.platform.http.form_pages import form_page
from runs.engine.hosts import actions
from runs.engine.machines import overview, requests
from runs.engine.machines.forms import MachineSourceForm
from runs.engine.machines.models import KINDS, MachineRequest, MachineSource


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def source_new(request: HttpRequest, engine: str) -> HttpResponseBase:
    if engine not in KINDS:
        raise Http404(f"There is no engine {engine}.")
    initial = {"control_url": request.build_absolute_uri("/").rstrip("/")}
    form = MachineSourceForm(KINDS[engine], request.POST if request.method == "POST" else None, initial=initial)
    return _form(request, form)


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def source(request: HttpRequest, source_id: int) -> HttpResponseBase:
    row = get_object_or_404(MachineSource, pk=source_id)
    kind = KINDS.get(row.kind)
    if kind is None:
        raise Http404(f"This version doesn't know the engine {row.kind}.")
    form = MachineSourceForm(kind, request.POST if request.method == "POST" else None, instance=row)
    return _form(request, form)


def _form(request: HttpRequest, form: MachineSourceForm) -> HttpResponseBase:
    if request.method == "POST" and form.is_valid():
        source_row = form.save_by(person(request))
        messages.success(request, f"{source_row.name} is saved.")
        return redirect("hardware")
    # The stored name, not the submitted one.
    name = MachineSource.objects.filter(pk=form.instance.pk).values_list("name", flat=True).first()
    context = {"form": form, "kind": form.kind, "name": name}
    return form_page(request, "engine/machines/source.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def source_delete(request: HttpRequest, source_id: int) -> HttpResponseBase:
    """Show the page that confirms the deletion of a source; on POST, delete the source and its requests."""
    row = get_object_or_404(MachineSource, pk=source_id)
    if request.method == "POST":
        with transaction.atomic():
            MachineSource.objects.select_for_update().get(pk=row.pk)
            has_machines = row.requests.filter(state__in=MachineRequest.LIVE).exists()
            if not has_machines:
                row.requests.all().delete()
                row.delete()
        if has_machines:
            messages.error(request, f"{row.name} still has machines. Turn it off, then delete it once they have left.")
        else:
            messages.success(request, f"{row.name} is deleted.")
        return redirect("hardware")
    machines = overview.lines(row.requests.filter(state__in=MachineRequest.LIVE))
    return render(request, "engine/machines/delete.html", {"source": row, "live": machines})


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def release(request: HttpRequest, machine_id: int) -> HttpResponseBase:
    """Show the page that confirms the release of a machine; on POST, release it."""
    row = get_object_or_404(MachineRequest.objects.select_related("source", "attempt__run"), pk=machine_id)
    if request.method == "POST":
        if problem := requests.release(row, by=person(request).get_username()):
            messages.error(request, f"{row.host_name} was not released: {problem}")
        else:
            messages.success(request, f"{row.host_name} is being released.")
        return redirect("hardware")
    host = Host.objects.filter(name=row.host_name).first()
    attempts = actions.on_host(host) if host else []
    return render(request, "engine/machines/release.html", {"machine": overview.line(row), "attempts": attempts})
