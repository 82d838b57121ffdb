"""The Hardware page: hosts, GPUs and the runs that hold them, and operators' actions."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.catalogue.hardware.prices import PriceForm, gpu_hour
from controlplane.catalogue.hardware.queries import host_for, hosts_for, known_host_for, profiles_for
from controlplane.platform.accounts.roles import admin_required, operator_required, person
from controlplane.platform.http.form_pages import form_page
from controlplane.platform.templatetags.figures import NO_VALUE, mib
from runs.engine import disk
from runs.engine.hosts import actions, announcements, overview
from runs.engine.hosts.view import GpuView, host_views, is_fresh
from runs.engine.machines import overview as machines
from runs.engine.models import Lease
from runs.engine.sentences import counted, resource_words
from runs.engine.warm import overview as warm_servers
from runs.pages.hosts.host_card import host_card, these_end


@require_safe
def hardware(request: HttpRequest) -> HttpResponse:
    """Show hosts, queue, machines and profiles; htmx polls for the page without the profiles."""
    announcements.watch(timezone.now())
    hosts = sorted(host_views(hosts_for(request)), key=lambda host: not host.fresh)
    queue = overview.queue()
    verdict = overview.verdict(hosts, len(queue))
    disk_use = disk.of_hosts()
    cards = [host_card(host, person(request), disk_use.get(host.row.pk)) for host in hosts]
    context = {
        "cards": cards,
        "queue": queue,
        "priorities": overview.PRIORITIES,
        "verdict": verdict,
        "machines": machines.overview(),
        "warm_servers": warm_servers.lines(),
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "pages/hosts/_hosts.html", context)
    return render(request, "pages/hosts/hardware.html", {**context, "profiles": profiles_for(request)})


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def release_lease(request: HttpRequest, lease_id: int) -> HttpResponseBase:
    """Release resources that have been in quarantine since a run ended, after a page that explains the consequences."""
    lease = get_object_or_404(Lease.objects.select_related("host", "attempt__run"), pk=lease_id)
    leases = Lease.objects.filter(host=lease.host, attempt=lease.attempt, state=Lease.QUARANTINED).order_by("pk")
    if request.method == "POST":
        chosen_ids = {lease.pk, *(int(pk) for pk in request.POST.getlist("lease") if pk.isascii() and pk.isdigit())}
        released = actions.release([candidate for candidate in leases if candidate.pk in chosen_ids], person(request))
        if released:
            messages.success(request, f"{resource_words(released)} of {lease.host.name} can be used again.")
        else:
            messages.info(request, f"{resource_words([lease.resource])} of {lease.host.name} is not in quarantine.")
        return redirect("hardware")
    gpus = {f"gpu:{gpu.index}": gpu for gpu in host_views([lease.host])[0].gpus}
    receipts = {f"gpu:{gpu.get('gpu')}": gpu for gpu in (lease.attempt.receipt or {}).get("gpus") or ()}
    rows = [
        (candidate, receipts.get(candidate.resource), _in_use(gpus.get(candidate.resource))) for candidate in leases
    ]
    # The lease that was clicked is always released.
    rows.sort(key=lambda row: row[0].pk != lease.pk)
    resource = resource_words([lease.resource])
    has_several = len(rows) > 1
    act = "Release the selected" if has_several else f"Release {resource}"
    context = {"lease": lease, "rows": rows, "resource": resource, "several": has_several, "act": act}
    return render(request, "pages/hosts/release.html", context)


def _in_use(gpu: GpuView | None) -> str:
    return format_html("{} of {}", mib(gpu.used_mib), mib(gpu.memory_mib)) if gpu else NO_VALUE


@require_POST
@operator_required
def drain(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Make a host stop accepting runs, or accept them again."""
    actions.drain(host_for(request, host_id), draining=request.POST.get("draining") == "1")
    return redirect("hardware")


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def allow_unsandboxed(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Allow or forbid reward code on a host without a working sandbox, after a page that explains the consequences."""
    host = host_for(request, host_id)
    if request.method == "POST":
        actions.allow_unsandboxed(host, person(request), allowed=request.POST.get("allowed") == "1")
        if host.unsandboxed_allowed:
            messages.warning(request, f"Reward code now runs without a sandbox on {host.name}.")
        else:
            messages.success(
                request, f"{host.name} no longer runs code without a sandbox. Runs already started continue."
            )
        return redirect("hardware")
    return render(request, "pages/hosts/unsandboxed.html", {"host": host_views([host])[0]})


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def price(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Set a host's price per GPU-hour."""
    host = host_for(request, host_id)
    form = PriceForm(request.POST if request.method == "POST" else None, instance=host)
    if request.method == "POST" and form.is_valid():
        host.save(update_fields=["gpu_hour_price", "currency"])
        hour = gpu_hour(host)
        messages.success(request, f"A GPU-hour of {host.name} {f'costs {hour}' if hour else 'has no price'}.")
        return redirect("hardware")
    return form_page(request, "pages/hosts/price.html", {"host": host, "form": form})


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def give_up_host(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Declare a host lost and end its runs, after a page that explains the consequences."""
    host = host_for(request, host_id)
    if request.method == "POST":
        if is_fresh(host):
            messages.info(request, f"{host.name} is reachable again, so nothing was changed. Stop its runs instead.")
            return redirect("hardware")
        ended_count, released = actions.give_up(host, person(request), free=request.POST.get("free") == "1")
        if ended_count or released:
            runs = f"{counted(ended_count, 'run')} on {host.name} ended as lost" if ended_count else ""
            resources = f"{counted(released, 'resource')} released" if released else ""
            messages.success(request, f"{', '.join(filter(None, (runs, resources)))}.")
        else:
            messages.info(request, f"Nothing was running on {host.name}, so nothing was changed.")
        return redirect("hardware")
    attempts = actions.on_host(host)
    context = {"host": host_views([host])[0], "attempts": attempts, "these_end": these_end(len(attempts))}
    return render(request, "pages/hosts/give_up.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def remove_host(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Hide an unreachable host."""
    host = known_host_for(request, host_id)
    if host.removed_at is not None:
        messages.info(request, f"{host.name} has already been removed.")
        return redirect("hardware")
    if request.method == "POST":
        problem = actions.remove(host)
        if problem:
            messages.error(request, problem)
        else:
            messages.success(request, f"{host.name} was removed. It will reappear if its worker starts again.")
        return redirect("hardware")
    return render(request, "pages/hosts/remove.html", {"host": host_views([host])[0]})
