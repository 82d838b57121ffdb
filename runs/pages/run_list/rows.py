"""The run list's page: its rows, its summary line, and the choices of its filters."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db.models import Exists, OuterRef
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
from runs.engine.scheduling import gpu_queue, leasing
from runs.engine.sentences import counted
from runs.engine.states import ACTIVE, RunStatus
from runs.pages.run_list.columns import (
    FIGURE,
    FIGURES,
    METRIC,
    SETTING,
    USUAL_COLUMNS,
    Column,
    column,
    is_setting,
    offered_columns,
    split_columns,
    with_figures,
    with_labels,
)
from runs.pages.run_list.groups import grouping
from runs.pages.run_list.query import ARCHIVED, HEALTH_FILTERS, KINDS, SORTS, STATUSES, TAG, RunListQuery
from runs.pages.run_list.row import RunListRow, row_of

PAGE_SIZE = 50
READY_VIEWS = {
    "Every run": "",
    "Active": "status=active&sort=status",
    "Unhealthy": "status=active&health=unwell&sort=health",
    "Archived": "archived=only",
}
Option = tuple[str, str]
"""An option of a filter, as (value, label)."""


@dataclass(frozen=True)
class RunListing:
    query: RunListQuery
    shown: set[str]
    extra: list[Column]
    rows: list[RunListRow]
    """The page's runs; if runs are grouped, the runs whose settings and metrics are offered as columns."""
    total: int
    counts: dict[str, int]
    gpus_busy: int
    gpus: int
    rising: int
    """Number of running runs whose reward is higher now than at their start."""
    grouping: dict[str, Any] | None
    """The groups, or None if runs are listed individually."""

    @property
    def last_page(self) -> int:
        return _last_page(self.total)

    @property
    def extent(self) -> str:
        if self.last_page == 1:
            return counted(self.total, "run")
        first_number = (self.query.page - 1) * PAGE_SIZE
        return f"{sig(first_number + 1, 9)}–{sig(first_number + len(self.rows), 9)} of {sig(self.total, 9)}"

    @property
    def before(self) -> str | None:
        return self.query.address(page=self.query.page - 1) if self.query.page > 1 else None

    @property
    def after(self) -> str | None:
        return self.query.address(page=self.query.page + 1) if self.query.page < self.last_page else None

    @cached_property
    def hides_runs(self) -> bool:
        """True if an empty list is due to filters, either chosen or default ones."""
        return self.query.filtered or Run.objects.exists()

    @property
    def filters(self) -> list[tuple[str, str]]:
        """(label, address without it) of each active filter, and of the grouping."""
        labels = self.query.filters()
        if self.grouping:
            label = self.grouping["label"]
            labels["group"] = f"grouped by {label[0].lower()}{label[1:]}"
        return [(label, self.query.address(**{name: ""})) for name, label in labels.items()]

    @cached_property
    def apart(self) -> dict[str, Parts]:
        """The parts in which similar names of the page's runs differ, by name."""
        return distinguish(row.run.name for row in self.rows)

    @property
    def columns(self) -> list[dict[str, str]]:
        keys = ["status", "name", *(key for key in USUAL_COLUMNS if key in self.shown)]
        return [
            *(_heading(self.query, key, SORTS[key].label) for key in keys),
            *(_heading(self.query, added.key, added.label, added.title) for added in self.extra),
        ]


def _heading(query: RunListQuery, key: str, label: str, title: str = "") -> dict[str, str]:
    """Describe a table heading, whose link sorts by the column or reverses the order."""
    sort = f"{SORTS[key].first if key in SORTS else '-'}{key}"
    direction, icon = "", ""
    if query.sort.removeprefix("-") == key:
        is_descending = query.sort.startswith("-")
        sort = key if is_descending else f"-{key}"
        direction, icon = ("descending", "arrow-down") if is_descending else ("ascending", "arrow-up")
    css, address = "chosen" if title else key, query.address(sort=sort)
    return {"key": key, "label": label, "address": address, "aria": direction, "icon": icon, "css": css, "title": title}


def empty_list(run_listing: RunListing, *, may_operate: bool) -> EmptyState:
    runs, query = reverse("runs"), run_listing.query
    if query.only_archived:
        explanation = (
            "To hide runs that nobody needs to see, select them in the list and archive them. They can be unarchived."
        )
        return EmptyState("archive", "Nothing is archived", explanation, runs, "All runs")
    if query.filtered:
        return EmptyState("search", "No run matches", "Try fewer words or fewer filters.", runs, "Clear all filters")
    if run_listing.hides_runs:
        everything = f"{runs}?{RunListQuery(kind='all', archived='all').address()}"
        explanation = "All runs here are archived, or are trials of hardware profiles."
        return EmptyState("archive", "Every run is archived", explanation, everything, "Show them")
    if may_operate:
        explanation = (
            "A run trains a language model with GRPO on one of your hosts, with a dataset and rewards. "
            "The first steps show how to start one."
        )
        return EmptyState("activity", "No runs yet", explanation, reverse("start"), "First steps")
    return EmptyState("activity", "No runs yet", "Runs appear here as soon as an operator launches one.")


def listing(request: HttpRequest) -> RunListing:
    """Read the requested page of the list. The number of queries doesn't depend on the number of runs."""
    query = RunListQuery.of(request.GET.dict())
    all_runs = queries.runs_for(request).select_related("reward_version__config")
    matching_runs = query.matching(all_runs)
    total = matching_runs.count()
    query = replace(query, page=min(query.page, _last_page(total)))
    shown_columns, extra_columns = split_columns(query.columns)
    # Sort only the ids: sorting whole rows would make the database read all of them in full.
    offset = (query.page - 1) * PAGE_SIZE
    ids = list(query.ordered(matching_runs).values_list("pk", flat=True)[offset : offset + PAGE_SIZE])
    by_id = with_figures(all_runs, extra_columns).in_bulk(ids)
    runs = [by_id[pk] for pk in ids if pk in by_id]
    extra_columns = with_labels(extra_columns, runs)
    counts, rising = _count_active(query.kind)
    positions = gpu_queue.positions() if any(run.latest().status == RunStatus.QUEUED for run in runs) else {}
    return RunListing(
        query,
        shown_columns,
        extra_columns,
        rows=[row_of(run, positions, extra_columns) for run in runs],
        total=total,
        counts=counts,
        gpus_busy=Lease.objects.filter(leasing.ACTIVE, resource__startswith="gpu:").count(),
        gpus=sum(len(gpus or []) for gpus in Host.objects.values_list("inventory__gpus", flat=True)),
        rising=rising,
        grouping=grouping(query, extra_columns, matching_runs, total) if query.group else None,
    )


def choices(request: HttpRequest, run_listing: RunListing) -> dict[str, Any]:
    """Collect the choices of all filters, the views, and the available columns, grouped under headings."""
    query = run_listing.query
    differing, common, metrics = offered_columns(row.values for row in run_listing.rows)
    metrics = with_labels(metrics, (row.run for row in run_listing.rows))
    user, all_tags = person(request), tags()
    owns = Exists(Run.objects.filter(owner=OuterRef("pk")))
    people = User.objects.filter(owns).order_by("username").values_list("username", flat=True)
    hosts = Host.objects.values_list("name", flat=True)
    return {
        "status": _filter(query, "status", "Status", "Every status", ((name, name.capitalize()) for name in STATUSES)),
        "filters": [
            _filter(query, "health", "Health", "Any", _labels(HEALTH_FILTERS)),
            _filter(query, "tag", "Tag", "Any", zip(all_tags, all_tags, strict=True)),
            _filter(query, "by", "Launched by", "Anyone", ((name, name) for name in people)),
            _filter(query, "host", "Host", "Any", ((name, name) for name in hosts)),
            _filter(query, "kind", "Kind", "", _labels(KINDS)),
            _filter(query, "archived", "Archive", "", _labels(ARCHIVED)),
            _filter(query, "group", "Group by", "Nothing", _groupings(query, differing)),
            _filter(query, "sort", "Order", "", _sorts(run_listing.extra)),
        ],
        "tags": all_tags,
        "views": [*READY_VIEWS.items(), ("My runs", RunListQuery(by=user.get_username()).address())],
        "own_views": list(SavedView.objects.filter(owner=user)),
        "columns": _column_choices(run_listing, [*differing, *common, *metrics]),
    }


def _column_choices(
    run_listing: RunListing, offers: Iterable[Column]
) -> list[tuple[str, list[tuple[str, str, bool, str]]]]:
    """Return pairs of (heading, columns), each column with its key, its label, whether it is shown, and its full
    name."""
    figures = [Column(FIGURE, name) for name in FIGURES]
    by_key = {offer.key: offer for offer in (*offers, *run_listing.extra)}
    of_kind = {
        kind: [
            (key, offer.chart_label or offer.name, offer in run_listing.extra, offer.title)
            for key, offer in by_key.items()
            if offer.kind == kind
        ]
        for kind in (METRIC, SETTING)
    }
    return [
        ("Standard", [(key, label, key in run_listing.shown, "") for key, label in USUAL_COLUMNS.items()]),
        ("More", [(figure.key, figure.label, figure in run_listing.extra, "") for figure in figures]),
        ("Metrics", of_kind[METRIC]),
        ("Settings", of_kind[SETTING]),
    ]


def tags() -> list[str]:
    """Return all tags. The database sends each distinct set of tags once, from an index."""
    sets = Run.objects.exclude(tags=[]).order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in sets for tag in tags})


def _last_page(total: int) -> int:
    return max(1, -(-total // PAGE_SIZE))


def _count_active(kind: str) -> tuple[dict[str, int], int]:
    """Count the active runs by status, in life-cycle order, and the running ones with a rising reward."""
    runs = Run.objects.filter(KINDS[kind][1], attempts__status__in=ACTIVE).order_by()
    active_runs = list(runs.values_list("attempts__status", "reward_ends"))
    counts = Counter(status for status, _ in active_runs)
    rising = sum(1 for status, ends in active_runs if status == RunStatus.RUNNING and (gain(ends) or 0) > 0)
    return {status: counts[status] for status in RunStatus if counts[status]}, rising


def _filter(query: RunListQuery, name: str, label: str, no_filter: str, values: Iterable[Option]) -> dict[str, Any]:
    """Describe a filter field. If `no_filter` is given, it labels the first option, which means no filter."""
    value = getattr(query, name)
    options = [*([("", no_filter)] if no_filter else []), *values]
    if value not in dict(options):
        options.append((value, value))
    return {"name": name, "label": label, "options": options, "chosen": value}


def _labels(filters: dict[str, tuple[str, Any]]) -> Iterator[Option]:
    return ((value, label) for value, (label, _) in filters.items())


def _groupings(query: RunListQuery, differing: Iterable[Column]) -> list[Option]:
    """Offer grouping by tag, and by settings with more than one value among the page's runs."""
    current_columns = [column(query.group)] if is_setting(query.group) else []  # perhaps no run on this page has it
    return [(TAG, "Tag"), *{offer.key: offer.heading for offer in (*current_columns, *differing)}.items()]


def _sorts(extra: Iterable[Column]) -> Iterator[Option]:
    """Yield sort orders, for layouts without table headings such as on phones."""
    standard = {key: sort.label for key, sort in SORTS.items()}
    for key, label in {**standard, **{added.key: added.label for added in extra}}.items():
        yield key, f"{label} ↑"
        yield f"-{key}", f"{label} ↓"
