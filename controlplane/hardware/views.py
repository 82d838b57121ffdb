"""The Hardware page: hosts, GPUs and who holds them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from controlplane.hardware.flow import release
from controlplane.hardware.hosts import host_views
from controlplane.hardware.queries import host_for, hosts_for, profiles_for
from runs import launching
from runs.models import Attempt, Lease
from runs.states import RunStatus


@require_safe
def hardware(request: HttpRequest) -> HttpResponse:
    """htmx asks every few seconds and gets the hosts alone."""
    hosts = host_views(hosts_for(request))
    queue = Attempt.objects.filter(status=RunStatus.QUEUED).select_related("run", "run__owner")
    context = {
        "hosts": hosts,
        "gpus": sum(len(h.gpus) for h in hosts),
        "gpus_held": sum(1 for h in hosts for g in h.gpus if g.holder),
        "stale": sum(1 for h in hosts if not h.fresh),
        "queue": queue.order_by("-priority", "created_at"),
        "profiles": profiles_for(request),
    }
    htmx = request.headers.get("HX-Request") == "true"
    return render(request, "hardware/hosts.html" if htmx else "hardware/hardware.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def release_lease(request: HttpRequest, lease_id: int) -> HttpResponseBase:
    """An operator's word that a quarantined resource is free again; the page before it says what that means."""
    lease = get_object_or_404(Lease.objects.select_related("host", "attempt__run"), pk=lease_id)
    if request.method == "POST":
        if release(lease, person(request)):
            messages.success(request, f"{lease.resource} of {lease.host.name} can be used again.")
        else:
            messages.info(request, f"{lease.resource} of {lease.host.name} is not in quarantine.")
        return redirect("hardware")
    receipt = lease.attempt.receipt or {}
    gpus = [gpu for gpu in receipt.get("gpus") or () if lease.resource in (f"gpu:{gpu.get('gpu')}", gpu.get("gpu"))]
    now = [gpu for gpu in host_views([lease.host])[0].gpus if f"gpu:{gpu.index}" == lease.resource]
    context = {"lease": lease, "receipt": gpus[0] if gpus else None, "gpu": now[0] if now else None}
    return render(request, "hardware/release.html", context)


@require_POST
@operator_required
def drain(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Take no new runs on a host, or take them again."""
    host = host_for(request, host_id)
    host.draining = request.POST.get("draining") == "1"
    host.save(update_fields=["draining"])
    if not host.draining:
        launching.dispatch_ready()
    return redirect("hardware")
