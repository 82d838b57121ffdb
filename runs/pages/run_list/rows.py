"""The run list's page: rows, a summary line, and the choices of filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from controlplane.platform.templatetags.figures import sig
from controlplane.platform.templatetags.frame import EmptyState
from runs.engine import queries
from runs.engine.gain import gain
from runs.engine.models import Lease, Run, SavedView
from runs.engine.names import Parts, distinguish
from runs.engine.scheduling import leasing, queueing
from runs.engine.sentences import counted
from runs.engine.states import ACTIVE, RunStatus
from runs.pages.run_list.columns import (
    FIGURE,
    USUAL,
    Column,
    chosen,
    column,
    figure_columns,
    is_setting,
    labelled,
    offered,
    with_figures,
)
from runs.pages.run_list.groups import Grouping, grouping
from runs.pages.run_list.query import ARCHIVED, HEALTH_FILTERS, KINDS, SORTS, STATUSES, TAG, RunListQuery
from runs.pages.run_list.row import RunListRow, row_of

PAGE_SIZE = 50
READY_VIEWS = {
    "Every run": "",
    "Active": "status=active&sort=status",
    "Unhealthy": "status=active&health=unwell&sort=health",
    "Archived": "archived=only",
}
"""Built-in views -> their addresses."""


@dataclass(frozen=True)
class TableColumn:
    """A table heading; its link sorts by the column, or reverses the order."""

    key: str
    words: str
    address: str
    direction: str
    """The value of aria-sort; empty: another column determines the order."""
    title: str = ""
    """Full name of a setting or metric."""

    @property
    def css(self) -> str:
        return "chosen" if self.title else self.key

    @property
    def icon(self) -> str:
        return {"ascending": "arrow-up", "descending": "arrow-down"}.get(self.direction, "")


@dataclass(frozen=True)
class RunListing:
    query: RunListQuery
    rows: list[RunListRow]
    """The page's runs; with groups, the runs that offer columns."""
    others: list[Column]
    """The chosen settings, metrics and figures."""
    found: int
    counts: dict[str, int]
    gpus_busy: int
    gpus: int
    rising: int
    """Running runs whose reward is higher now than at their start."""
    grouping: Grouping | None
    """None: runs are listed one by one."""

    @property
    def running(self) -> int:
        return self.counts.get(RunStatus.RUNNING, 0)

    @property
    def last_page(self) -> int:
        return _last_page(self.found)

    @property
    def extent(self) -> str:
        """Range of the listed runs, and their total."""
        if self.last_page == 1:
            return counted(self.found, "run")
        first = (self.query.page - 1) * PAGE_SIZE
        return f"{sig(first + 1, 9)}–{sig(first + len(self.rows), 9)} of {sig(self.found, 9)}"

    @property
    def before(self) -> str | None:
        """The previous page's address, or None."""
        return self.query.address(page=self.query.page - 1) if self.query.page > 1 else None

    @property
    def after(self) -> str | None:
        return self.query.address(page=self.query.page + 1) if self.query.page < self.last_page else None

    @cached_property
    def hides_runs(self) -> bool:
        """True if an empty list is due to filters, chosen or default."""
        return self.query.filtered or Run.objects.exists()

    @property
    def filters(self) -> list[tuple[str, str]]:
        """(label, address without it) of each active filter, and of the groups."""
        every = self.query.filters()
        if self.grouping:
            every["group"] = f"grouped by {self.grouping.words[0].lower()}{self.grouping.words[1:]}"
        return [(words, self.query.address(**{name: ""})) for name, words in every.items()]

    @cached_property
    def apart(self) -> dict[str, Parts]:
        """Distinguishes the runs of the page that have similar names."""
        return distinguish(row.run.name for row in self.rows)

    @property
    def shown(self) -> set[str]:
        """The usual columns that are shown."""
        return chosen(self.query.columns)[0]

    @property
    def columns(self) -> list[TableColumn]:
        keys = ["status", "name", *(key for key in USUAL if key in self.shown)]
        own = [replace(_column(other.key, other.words, self.query), title=other.title) for other in self.others]
        return [_column(key, SORTS[key].words, self.query) for key in keys] + own


@dataclass(frozen=True)
class FilterField:
    """A filter field; its first option stands for no filter."""

    name: str
    words: str
    options: list[tuple[str, str]]
    chosen: str


@dataclass(frozen=True)
class Choices:
    """The choices of all filters."""

    status: FilterField
    filters: list[FilterField]
    tags: list[str]
    views: list[tuple[str, str]]
    """(name, address) of the built-in views."""
    own_views: list[SavedView]
    columns: list[tuple[str, list[ColumnChoice]]]
    """The columns to choose from, in groups with headings."""


@dataclass(frozen=True)
class ColumnChoice:
    key: str
    words: str
    shown: bool
    title: str = ""
    """Full name of a setting or metric."""


def empty_list(listed: RunListing, *, may_operate: bool) -> EmptyState:
    """Explain an empty list, with the next step."""
    runs, query = reverse("runs"), listed.query
    if query.only_archived:
        text = (
            "Archive runs that nobody needs to see: select them in the list. They stay unchanged and can be restored."
        )
        return EmptyState("archive", "Nothing is archived", text, runs, "All runs")
    if query.filtered:
        return EmptyState("search", "No run matches", "Try fewer words or fewer filters.", runs, "Clear all filters")
    if listed.hides_runs:
        everything = f"{runs}?{RunListQuery(kind='all', archived='all').address()}"
        text = "All runs here are archived, or are trials of hardware profiles."
        return EmptyState("archive", "Every run is archived", text, everything, "Show them")
    if may_operate:
        text = (
            "A run trains a language model with GRPO on one of your hosts, on a dataset, with rewards. "
            "The first steps lead there."
        )
        return EmptyState("activity", "No runs yet", text, reverse("start"), "First steps")
    return EmptyState("activity", "No runs yet", "Runs appear here, live, as soon as an operator launches one.")


def listing(request: HttpRequest) -> RunListing:
    """The list, in a fixed number of queries for any number of runs."""
    query = RunListQuery.of(request.GET.dict())
    everything = queries.runs_for(request).select_related("reward_version__config")
    matching = query.matching(everything)
    total = matching.count()
    query = query.at_most(_last_page(total))
    others = chosen(query.columns)[1]
    runs = _runs(everything, _page(query, matching), others)
    others = labelled(others, runs)
    grouped = grouping(query, others, matching, total) if query.group else None
    counts, rising = _active(query.kind)
    busy = Lease.objects.filter(leasing.ACTIVE, resource__startswith="gpu:").count()
    gpus = sum(len(total or []) for total in Host.objects.values_list("inventory__gpus", flat=True))
    places = queueing.positions() if any(run.latest().status == RunStatus.QUEUED for run in runs) else {}
    rows = [row_of(run, places, others) for run in runs]
    return RunListing(query, rows, others, total, counts, gpus_busy=busy, gpus=gpus, rising=rising, grouping=grouped)


def choices(request: HttpRequest, listed: RunListing) -> Choices:
    query = listed.query
    unlike, same, metrics = offered(row.values for row in listed.rows)
    metrics = labelled(metrics, (row.run for row in listed.rows))
    user, every_tag = person(request), tags()
    owns = Exists(Run.objects.filter(owner=OuterRef("pk")))
    people = User.objects.filter(owns).order_by("username").values_list("username", flat=True)
    hosts = Host.objects.values_list("name", flat=True)
    health = [(value, words) for value, (words, _) in HEALTH_FILTERS.items()]
    return Choices(
        status=_filter(
            query, "status", "Status", "Every status", [(status, status.capitalize()) for status in STATUSES]
        ),
        filters=[
            _filter(query, "health", "Health", "Any", health),
            _filter(query, "tag", "Tag", "Any", [(tag, tag) for tag in every_tag]),
            _filter(query, "by", "Launched by", "Anyone", [(name, name) for name in people]),
            _filter(query, "host", "Host", "Any", [(name, name) for name in hosts]),
            _filter(query, "kind", "Kind", "", [(kind, words) for kind, (words, _) in KINDS.items()]),
            _filter(query, "archived", "Archive", "", [(value, words) for value, (words, _) in ARCHIVED.items()]),
            _filter(query, "group", "Group by", "Nothing", _groupings(query, unlike)),
            _filter(query, "sort", "Order", "", _sorts(listed.others)),
        ],
        tags=every_tag,
        views=[*READY_VIEWS.items(), ("My runs", RunListQuery(by=user.get_username()).address())],
        own_views=list(SavedView.objects.filter(owner=user)),
        columns=_column_choices(listed, [*unlike, *same], metrics),
    )


def _column_choices(
    listed: RunListing, settings: Iterable[Column], metrics: Iterable[Column]
) -> list[tuple[str, list[ColumnChoice]]]:
    known = {offer.key: offer for offer in (*settings, *metrics, *listed.others) if offer.kind != FIGURE}
    offers = [
        ColumnChoice(key, offer.label or offer.name, offer in listed.others, offer.title)
        for key, offer in known.items()
    ]
    return [
        ("Usual", [ColumnChoice(key, words, key in listed.shown) for key, words in USUAL.items()]),
        ("More", [ColumnChoice(figure.key, figure.words, figure in listed.others) for figure in figure_columns()]),
        ("Metrics", [offer for offer in offers if not is_setting(offer.key)]),
        ("Settings", [offer for offer in offers if is_setting(offer.key)]),
    ]


def tags() -> list[str]:
    """All tags: the database sends each distinct set once, from an index."""
    sets = Run.objects.exclude(tags=[]).order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in sets for tag in tags})


def _last_page(total: int) -> int:
    return max(1, -(-total // PAGE_SIZE))


def _page(query: RunListQuery, matching: QuerySet[Run]) -> list[str]:
    """The page's ids alone: sorting whole rows would make the database read all of them in full."""
    first = (query.page - 1) * PAGE_SIZE
    return list(query.ordered(matching).values_list("pk", flat=True)[first : first + PAGE_SIZE])


def _runs(everything: QuerySet[Run], ids: list[str], columns: list[Column]) -> list[Run]:
    runs = with_figures(everything, columns).in_bulk(ids)
    return [runs[pk] for pk in ids if pk in runs]


def _active(kind: str) -> tuple[dict[str, int], int]:
    """The active runs by status, in life-cycle order, and how many running ones have a rising reward."""
    runs = Run.objects.filter(KINDS[kind][1], attempts__status__in=ACTIVE).order_by()
    active = list(runs.values_list("attempts__status", "reward_ends"))
    counts = Counter(status for status, _ in active)
    rising = sum(1 for status, ends in active if status == RunStatus.RUNNING and (gain(ends) or 0) > 0)
    return {status: counts[status] for status in RunStatus if counts[status]}, rising


def _column(key: str, words: str, query: RunListQuery) -> TableColumn:
    first = SORTS[key].first if key in SORTS else "-"
    if query.sort.removeprefix("-") != key:
        return TableColumn(key, words, query.address(sort=first + key), "")
    down = query.sort.startswith("-")
    other = key if down else f"-{key}"
    return TableColumn(key, words, query.address(sort=other), "descending" if down else "ascending")


def _filter(
    query: RunListQuery, name: str, words: str, nothing: str, options: Iterable[tuple[str, str]]
) -> FilterField:
    chosen, all_of_them = getattr(query, name), [("", nothing)] if nothing else []
    all_of_them += options
    if chosen not in dict(all_of_them):
        all_of_them.append((chosen, chosen))
    return FilterField(name, words, all_of_them, chosen)


def _groupings(query: RunListQuery, unlike: Iterable[Column]) -> list[tuple[str, str]]:
    """Offer groups by tag, and by settings with more than one value among the page's runs."""
    current = [column(query.group)] if is_setting(query.group) else []  # perhaps of no run on this page
    return [(TAG, "Tag"), *{offer.key: offer.heading for offer in (*current, *unlike)}.items()]


def _sorts(others: Iterable[Column]) -> Iterator[tuple[str, str]]:
    """Sort orders for layouts without table headings, as on phones."""
    usual = {key: sort.words for key, sort in SORTS.items()}
    for key, words in {**usual, **{other.key: other.words for other in others}}.items():
        yield key, f"{words} ↑"
        yield f"-{key}", f"{words} ↓"
