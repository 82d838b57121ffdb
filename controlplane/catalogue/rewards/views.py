"""Pages of the reward library, and the fragments that the editor requests."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from controlplane.catalogue.rewards.forms import editor_from, fresh
from controlplane.catalogue.rewards.library import groups
from controlplane.platform.accounts.roles import operator_required, person
from workers.rewards.library import LIBRARY


@require_GET
def library(request: HttpRequest) -> HttpResponse:
    """All rewards, with their examples."""
    return render(request, "catalogue/rewards/library.html", {"groups": groups(person(request)), "count": len(LIBRARY)})


@operator_required
@require_GET
def component(request: HttpRequest) -> HttpResponse:
    """A new editor row for a function of the library; ?instead=PREFIX replaces that row."""
    key = request.GET.get("function", "")
    reward = LIBRARY.get(key)
    if reward is None or (reward.admin_only and not person(request).may_administer):
        return HttpResponse("That reward doesn't exist, or you may not add it.", status=404, content_type="text/plain")
    instead = request.GET.get("instead", "")
    like = {name.removeprefix(f"{instead}-"): value for name, value in request.GET.items()} if instead else None
    used_names = {str(value) for name, value in request.GET.items() if name.endswith("-name")}
    place = request.GET.get("place", "")
    rows = int(place) if place.isdecimal() and len(place) < 4 else len(request.GET.getlist("row"))
    row = fresh(key, used_names, like)
    return render(request, "catalogue/rewards/_component.html", {"component": row, "place": rows, "open": not instead})


@operator_required
@require_POST
def balance(request: HttpRequest) -> HttpResponse:
    """The balance of the form's components."""
    return render(
        request, "catalogue/rewards/_balance.html", {"balance": editor_from(request.POST).balance(), "fixable": True}
    )
