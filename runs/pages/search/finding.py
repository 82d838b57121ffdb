"""Search for runs, datasets, rewards, models, hosts, pages and actions, for the palette and the API.

Every query applies the permissions of its kind and is bounded: runs are found by id, or by name among the newest
RUNS_SEARCHED; the tables of all other kinds are short.
"""

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
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.states import ACTIVE
from runs.pages.search.entries import ACTIONS, PAGES, PaletteEntry
from workers.contract.wire.names import EventKind

MAX_QUERY_CHARS = 100
HITS_PER_KIND = 5
RUNS_SEARCHED = 5000
RECENT = 8
Rows = Callable[[HttpRequest], QuerySet[Any]]


@dataclass(frozen=True)
class SearchHit:
    kind: str
    title: str
    address: str
    """Address of the hit's page; empty if the browser handles the hit."""
    icon: str
    about: str = ""
    does: str = ""


@dataclass(frozen=True)
class Noun:
    kind: str
    icon: str
    route: str
    rows: Rows
    key: str = "pk"
    name: str = "name"
    about: str = ""

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


@require_safe
def palette(request: HttpRequest) -> JsonResponse:
    """Send hits for the words ?q= or, without words, suggestions. ?recent= are the addresses that this browser has
    shown, newest first."""
    query = request.GET.get("q", "")
    hits = search(request, query) if query.strip() else suggestions(request, request.GET.getlist("recent"))
    items = [asdict(hit) | {"icon": lucide(hit.icon, size=16), "parts": ends(hit.title)[0]} for hit in hits]
    return JsonResponse({"items": items})


def search(request: HttpRequest, text: str) -> list[SearchHit]:
    """Find entries that match all words: first actions and pages, then objects, with the best of each kind first."""
    terms = text[:MAX_QUERY_CHARS].replace("\0", "").split()
    if not terms:
        return []
    user, all_runs = person(request), queries.runs_for(request)
    hits: list[SearchHit] = []
    for kind, entries in (("Action", ACTIONS), ("Page", PAGES)):
        visible_entries = (entry for entry in entries if entry.open_to(user))
        fitting = [entry for entry in visible_entries if _all_in(terms, f"{entry.title} {entry.synonyms}")]
        hits += _sort_by_match([_hit(kind, entry) for entry in fitting], terms)
    newest_ids = all_runs.order_by("-created_at").values("pk")[:RUNS_SEARCHED]
    named_runs = all_runs.filter(_match(terms, "name"), pk__in=newest_ids).order_by("-created_at")
    named_ids = list(named_runs.values_list("pk", flat=True)[: 8 * HITS_PER_KIND])
    runs = all_runs.filter(pk__in=[terms[0].lower(), *named_ids[:HITS_PER_KIND]])
    hits += NOUNS["run"].hits(runs.order_by("-created_at"))
    for noun in list(NOUNS.values())[1:]:
        rows = noun.rows(request).filter(_match(terms, noun.name)).order_by(noun.name)
        hits += _sort_by_match(noun.hits(rows[: 4 * HITS_PER_KIND]), terms)[:HITS_PER_KIND]
    hits += _models(request, named_ids)
    hits += _objects_without_page(request, user, terms)
    return [*hits, *_stops(request, user, terms)]


def suggestions(request: HttpRequest, recent: Iterable[str]) -> list[SearchHit]:
    """Return what the palette shows before anything is entered: recent pages that still exist, the newest runs, actions
    and pages."""
    hits = [hit for address in list(recent)[:RECENT] if (hit := _hit_at(request, address)) is not None]
    run_hits = [hit for hit in NOUNS["run"].hits(queries.runs_for(request)[:HITS_PER_KIND]) if hit not in hits]
    recents = [SearchHit("Recent", hit.title, hit.address, hit.icon, hit.kind) for hit in hits]
    entries = [("Action", entry) for entry in ACTIONS] + [("Page", entry) for entry in PAGES]
    return [*recents, *run_hits, *(_hit(kind, entry) for kind, entry in entries if entry.open_to(person(request)))]


def _hit_at(request: HttpRequest, address: str) -> SearchHit | None:
    try:
        match = resolve(address[:300])
    except Resolver404:
        return None
    noun = NOUNS.get((match.url_name or "").removesuffix("_version"))
    keys = [*match.kwargs.values(), *match.args]
    if noun is None or not keys or not queries.valid_ids([str(keys[0])]):
        return None
    return next(iter(noun.hits(noun.rows(request).filter(**{noun.key: keys[0]}))), None)


def _hit(kind: str, entry: PaletteEntry) -> SearchHit:
    address = reverse(entry.route) if entry.route else ""
    address += f"?{entry.query}" if entry.query else ""
    address += f"#{entry.part}" if entry.part else ""
    return SearchHit(kind, entry.title, address, entry.icon, does=entry.does)


def _models(request: HttpRequest, run_ids: list[str]) -> Iterator[SearchHit]:
    saving = Exists(RunEvent.objects.filter(run=OuterRef("pk"), kind=EventKind.CHECKPOINT))
    for run in queries.runs_for(request).filter(saving, pk__in=run_ids).order_by("-created_at")[:HITS_PER_KIND]:
        model = next((checkpoint for checkpoint in checkpoints.of_run(run) if checkpoint.usable), None)
        if model is not None:
            yield SearchHit("Model", model.name, reverse("model", args=[model.event.pk]), "box", model.kind)


def _objects_without_page(request: HttpRequest, user: User, terms: list[str]) -> Iterator[SearchHit]:
    for name in hosts_for(request).filter(_match(terms, "name")).values_list("name", flat=True)[:HITS_PER_KIND]:
        yield SearchHit("Host", name, reverse("hardware"), "cpu")
    for version in corpora_for(request).filter(_match(terms, "corpus__name"))[:HITS_PER_KIND]:
        yield SearchHit("Corpus", str(version), version.get_absolute_url(), "database")
    if user.may_administer:
        for name in User.objects.filter(_match(terms, "username")).values_list("username", flat=True)[:HITS_PER_KIND]:
            yield SearchHit("User", name, reverse("users"), "users")


def _stops(request: HttpRequest, user: User, terms: list[str]) -> Iterator[SearchHit]:
    """Yield actions that stop active runs whose names contain the terms; the run's page asks for confirmation."""
    verbs = [word for word in terms if len(word) > 1 and any(v.startswith(word.lower()) for v in ("stop", "save"))]
    if not user.may_operate or not verbs:
        return
    name_terms = [word for word in terms if word not in verbs and word.lower() not in ("and", "now")]
    active_ids = Attempt.objects.filter(status__in=ACTIVE).order_by().values("run_id")
    stoppable = queries.runs_for(request).filter(_match(name_terms, "name"), pk__in=active_ids).order_by("-created_at")
    for run in stoppable[:HITS_PER_KIND]:
        page = reverse("run", args=[run.pk])
        for title, mode in ((f"Stop “{run.name}” now…", "now"), (f"Save and stop “{run.name}”…", "save")):
            if _all_in(terms, title):
                yield SearchHit("Action", title, f"{page}#dialog=stop-{mode}", "octagon-x" if mode == "now" else "save")


def _match(terms: list[str], column: str) -> Q:
    return Q(*((f"{column}__icontains", word) for word in terms))


def _all_in(terms: list[str], text: str) -> bool:
    return all(word.casefold() in text.casefold() for word in terms)


def _sort_by_match(hits: list[SearchHit], terms: list[str]) -> list[SearchHit]:
    """Sort hits: first titles that begin with the first term, then titles with a word that does, then the rest."""
    first_term = terms[0].casefold()

    def rank(hit: SearchHit) -> int:
        title = hit.title.casefold()
        return 0 if title.startswith(first_term) else 1 if f" {first_term}" in title else 2

    return sorted(hits, key=rank)
