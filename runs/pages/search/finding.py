"""Search for runs, datasets, rewards, models, hosts, pages and actions, for the palette and the API.

Every query goes through its kind's permission gate and is bounded: runs are found by id, or by name among the newest
RUNS_SEARCHED; all other kinds have short tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, JsonResponse
from django.urls import Resolver404, resolve, reverse
from django.views.decorators.http import require_safe

from controlplane.catalogue.datasets.corpora.queries import corpora_for
from controlplane.catalogue.datasets.queries import datasets_for
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.hardware.queries import hosts_for, profiles_for
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import newest_versions
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from controlplane.platform.templatetags.figures import ends
from controlplane.platform.templatetags.lucide import lucide
from runs.engine import checkpoints, queries
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.states import ACTIVE
from runs.pages.search.places import ACTS, PAGES, Place
from workers.contract.wire.names import EventKind

LONGEST = 100
"""Longest query, in characters."""
HITS_PER_KIND = 5
"""Hits of each kind."""
RUNS_SEARCHED = 5000
RECENT = 8
Rows = Callable[[HttpRequest], QuerySet[Any]]


@dataclass(frozen=True)
class SearchHit:
    kind: str
    title: str
    address: str
    """Address of its page; empty if the browser handles it."""
    icon: str
    about: str = ""
    does: str = ""


@dataclass(frozen=True)
class Noun:
    """A kind of object with a name and a page."""

    kind: str
    icon: str
    route: str
    """Route of its page, which takes `key`."""
    rows: Rows
    key: str = "pk"
    name: str = "name"
    about: str = ""
    """A column to show beside the name."""

    def hits(self, rows: QuerySet[Any]) -> list[SearchHit]:
        columns = (self.key, self.name, *([self.about] if self.about else []))
        return [
            SearchHit(self.kind, str(name), reverse(self.route, args=[key]), self.icon, str(*about))
            for key, name, *about in rows.values_list(*columns)
        ]


NOUNS = {
    "run": Noun("Run", "activity", "run", queries.runs_for, about="owner__username"),
    "dataset": Noun("Dataset", "database", "dataset", datasets_for),
    "reward_config": Noun(
        "Reward config", "scale", "reward_config", lambda _: newest_versions(RewardVersion), "config_id", "config__name"
    ),
    "environment": Noun(
        "Environment",
        "wrench",
        "environment",
        lambda _: newest_versions(EnvironmentVersion),
        "environment_id",
        "environment__name",
    ),
    "profile": Noun("Hardware profile", "cpu", "profile", profiles_for),
}
"""route -> kind of object"""


@require_safe
def palette(request: HttpRequest) -> JsonResponse:
    """Answer ?q=words; without words, ?recent= has the addresses that this browser has shown, newest first."""
    text = request.GET.get("q", "")
    hits = search(request, text) if text.strip() else suggestions(request, request.GET.getlist("recent"))
    drawn = [{"icon": lucide(hit.icon, size=16), "parts": ends(hit.title)[0]} for hit in hits]
    return JsonResponse({"items": [asdict(hit) | more for hit, more in zip(hits, drawn, strict=True)]})


def search(request: HttpRequest, text: str) -> list[SearchHit]:
    """Find matches of every word: acts and pages first, then the objects, the best of each kind first."""
    words = text[:LONGEST].replace("\0", "").split()
    if not words:
        return []
    user = person(request)
    hits = [*_places(ACTS, "Action", user, words), *_places(PAGES, "Page", user, words)]
    named = list(_runs(request, words).values_list("pk", flat=True)[: 8 * HITS_PER_KIND])
    runs = queries.runs_for(request).filter(pk__in=[words[0].lower(), *named[:HITS_PER_KIND]])
    hits += NOUNS["run"].hits(runs.order_by("-created_at"))
    for noun in list(NOUNS.values())[1:]:
        rows = noun.rows(request).filter(_has(words, noun.name)).order_by(noun.name)
        hits += _ranked(noun.hits(rows[: 4 * HITS_PER_KIND]), words)[:HITS_PER_KIND]
    hits += _models(request, named)
    hits += _others(request, user, words)
    return [*hits, *_stops(request, user, words)]


def suggestions(request: HttpRequest, recent: Iterable[str]) -> list[SearchHit]:
    """List what the palette shows before typing: recent pages that still exist, the newest runs, actions and pages."""
    user = person(request)
    known = [hit for address in list(recent)[:RECENT] if (hit := _of_address(request, address)) is not None]
    newest = [hit for hit in NOUNS["run"].hits(queries.runs_for(request)[:HITS_PER_KIND]) if hit not in known]
    acts = [_hit(place, "Action") for place in ACTS if place.open_to(user)]
    pages = [_hit(place, "Page") for place in PAGES if place.open_to(user)]
    recents = [SearchHit("Recent", hit.title, hit.address, hit.icon, hit.kind) for hit in known]
    return [*recents, *newest, *acts, *pages]


def _of_address(request: HttpRequest, address: str) -> SearchHit | None:
    try:
        match = resolve(address[:300])
    except Resolver404:
        return None
    noun = NOUNS.get((match.url_name or "").removesuffix("_version"))
    keys = [*match.kwargs.values(), *match.args]
    if noun is None or not keys or not queries.readable([str(keys[0])]):
        return None
    return next(iter(noun.hits(noun.rows(request).filter(**{noun.key: keys[0]}))), None)


def _places(places: Iterable[Place], kind: str, user: User, words: list[str]) -> list[SearchHit]:
    fitting = [place for place in places if place.open_to(user) and _all_in(words, f"{place.title} {place.words}")]
    return _ranked([_hit(place, kind) for place in fitting], words)


def _hit(place: Place, kind: str) -> SearchHit:
    address = reverse(place.route) if place.route else ""
    address += f"?{place.query}" if place.query else ""
    address += f"#{place.part}" if place.part else ""
    return SearchHit(kind, place.title, address, place.icon, does=place.does)


def _runs(request: HttpRequest, words: list[str]) -> QuerySet[Run]:
    """Search by name, the newest first."""
    everything = queries.runs_for(request)
    newest = everything.order_by("-created_at").values("pk")[:RUNS_SEARCHED]
    return everything.filter(_has(words, "name"), pk__in=newest).order_by("-created_at")


def _models(request: HttpRequest, run_ids: list[str]) -> Iterator[SearchHit]:
    """Newest usable model of each of these runs, newest runs first."""
    saving = Exists(RunEvent.objects.filter(run=OuterRef("pk"), kind=EventKind.CHECKPOINT))
    for run in queries.runs_for(request).filter(saving, pk__in=run_ids).order_by("-created_at")[:HITS_PER_KIND]:
        saved = next((checkpoint for checkpoint in checkpoints.of_run(run) if checkpoint.usable), None)
        if saved is not None:
            yield SearchHit("Model", saved.name, reverse("model", args=[saved.event.pk]), "box", saved.kind)


def _others(request: HttpRequest, user: User, words: list[str]) -> Iterator[SearchHit]:
    """Objects without a page of their own."""
    for name in hosts_for(request).filter(_has(words, "name")).values_list("name", flat=True)[:HITS_PER_KIND]:
        yield SearchHit("Host", name, reverse("hardware"), "cpu")
    for version in corpora_for(request).filter(_has(words, "corpus__name"))[:HITS_PER_KIND]:
        yield SearchHit("Corpus", str(version), version.get_absolute_url(), "database")
    if user.may_administer:
        for name in User.objects.filter(_has(words, "username")).values_list("username", flat=True)[:HITS_PER_KIND]:
            yield SearchHit("User", name, reverse("users"), "users")


def _stops(request: HttpRequest, user: User, words: list[str]) -> Iterator[SearchHit]:
    """Actions that stop an active run; its page asks for confirmation."""
    verbs = [word for word in words if len(word) > 1 and any(v.startswith(word.lower()) for v in ("stop", "save"))]
    if not user.may_operate or not verbs:
        return
    named = [word for word in words if word not in verbs and word.lower() not in ("and", "now")]
    active = Attempt.objects.filter(status__in=ACTIVE).order_by().values("run_id")
    for run in (
        queries.runs_for(request).filter(_has(named, "name"), pk__in=active).order_by("-created_at")[:HITS_PER_KIND]
    ):
        page = reverse("run", args=[run.pk])
        for title, mode in ((f"Stop “{run.name}” now…", "now"), (f"Save and stop “{run.name}”…", "save")):
            if _all_in(words, title):
                yield SearchHit("Action", title, f"{page}#dialog=stop-{mode}", "octagon-x" if mode == "now" else "save")


def _has(words: list[str], column: str) -> Q:
    return Q(*((f"{column}__icontains", word) for word in words))


def _all_in(words: list[str], text: str) -> bool:
    return all(word.casefold() in text.casefold() for word in words)


def _ranked(hits: list[SearchHit], words: list[str]) -> list[SearchHit]:
    """Sort titles that begin with the first word first, then those with a word that does, then the others."""
    first = words[0].casefold()

    def rank(hit: SearchHit) -> int:
        title = hit.title.casefold()
        return 0 if title.startswith(first) else 1 if f" {first}" in title else 2

    return sorted(hits, key=rank)
