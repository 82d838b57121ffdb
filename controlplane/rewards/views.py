"""The list of reward configs, the editor, and the library of components."""

from __future__ import annotations

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from controlplane.accounts.roles import operator_required, person
from controlplane.rewards.forms import editor_from, fresh
from controlplane.rewards.library import groups
from controlplane.rewards.models import RewardConfig
from controlplane.rewards.queries import newest_versions
from workers.rewards import LIBRARY


@require_GET
def reward_configs(request: HttpRequest) -> HttpResponse:
    """?q: words in the name, the description or the owner's name; ?archived: include archived configs."""
    every = newest_versions().select_related("config__owner").annotate(run_count=Count("config__versions__runs"))
    words, archived = request.GET.get("q", "").strip()[:80], bool(request.GET.get("archived"))
    versions = every if archived else every.filter(config__archived_at=None)
    for word in words.split():
        config_matches = Q(config__name__icontains=word) | Q(config__description__icontains=word)
        versions = versions.filter(config_matches | Q(config__owner__username__icontains=word))
    context = {
        "versions": versions,
        "any": RewardConfig.objects.exists(),
        "away": 0 if archived else RewardConfig.objects.exclude(archived_at=None).count(),
        "wanted": words,
        "archived": archived,
    }
    return render(request, "rewards/list.html", context)


@require_GET
def library(request: HttpRequest) -> HttpResponse:
    """All rewards, with their examples."""
    return render(request, "rewards/library.html", {"groups": groups(person(request)), "count": len(LIBRARY)})


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
    return render(request, "rewards/_component.html", {"component": row, "place": rows, "open": not instead})


@operator_required
@require_POST
def balance(request: HttpRequest) -> HttpResponse:
    """How much each component of the form can move the total."""
    return render(request, "rewards/_balance.html", {"balance": editor_from(request.POST).balance(), "fixable": True})
