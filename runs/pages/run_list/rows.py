"""The run list's page: rows, a summary line, and the choices of filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from runs.engine import queries
from runs.engine.gain import gain
from runs.engine.models import Attempt, Lease, Run, SavedView
from runs.engine.names import Parts, distinguish
from runs.engine.scheduling import leasing, queueing
from runs.engine.sentences import placement_text
from runs.engine.states import ACTIVE, RunStatus
from runs.insight.comparing import comparison
from runs.pages.run_list.columns import (
    FIGURE,
    USUAL,
    Column,
    Values,
    chosen,
    column,
    figure_columns,
    is_setting,
    named,
    offered,
    with_figures,
)
from runs.pages.run_list.groups import Grouping, grouping
from runs.pages.run_list.query import ARCHIVED, HEALTH, HEALTH_ASKED, KINDS, SORTS, STATUSES, TAG, RunListQuery

A_PAGE = 50
TAGS_SHOWN = 2
READY_VIEWS = {
    "Every run": "",
    "Active": "status=active&sort=status",
    "Unhealthy": "status=active&health=unwell&sort=health",
    "Archived": "archived=only",
}
"""Built-in views -> their addresses."""


@dataclass(frozen=True)
class RunListRow:
    run: Run
    summary: queries.Summary
    attempt: Attempt
    where: str
    values: Values
    cells: list[tuple[str, str]]
    """(heading, text) of the chosen settings and metrics."""

    @property
    def model(self) -> str:
        """The model's name, for a path its last part. Empty if the spec can't be read."""
        return self._part("model", "path").rstrip("/").rsplit("/", 1)[-1]

    @property
    def about(self) -> str:
        return f"{self._part('model', 'path')} trained on {self._part('data', 'name')}"

    def _part(self, part: str, name: str) -> str:
        return str(comparison.part(self.run.spec, part).get(name, ""))

    @property
    def live(self) -> bool:
        return self.attempt.status in ACTIVE

    @property
    def tags(self) -> list[str]:
        return list(self.run.tags[:TAGS_SHOWN])

    @property
    def tags_beyond(self) -> list[tuple[int, list[str]]]:
        """(shown tags, the others) for each number of tags that a narrow cell may show."""
        every = list(self.run.tags)
        return [(shown, every[shown:]) for shown in range(TAGS_SHOWN, -1, -1) if every[shown:]]

    @property
    def failed_at_once(self) -> bool:
        """True if its progress is the reason of its failure."""
        return self.attempt.status == RunStatus.FAILED and not self.run.step

    @property
    def health(self) -> HealthCell | None:
        """The run's health. A failed run shows its failure instead, however healthy the policy was."""
        if self.attempt.status == RunStatus.FAILED:
            return HealthCell("failed", self.attempt.reason.replace("_", " "), "bad", [])
        return _health(self.run.health)


@dataclass(frozen=True)
class HealthCell:
    verdict: str
    word: str
    chip: str
    """Colour and shape of components/status.html."""
    titles: list[str]
    """Findings, the worst first."""


@dataclass(frozen=True)
class TableColumn:
    """A table heading; its link sorts by the column, or reverses the order."""

    key: str
    words: str
    address: str
    direction: str
    """The value of aria-sort; empty: another column determines the order."""
    title: str = ""
    """For a setting or metric: its whole name."""


@dataclass(frozen=True)
class Pages:
    at: int
    last: int
    first_row: int
    last_row: int


@dataclass(frozen=True)
class RunListing:
    query: RunListQuery
    rows: list[RunListRow]
    """Of a page; with groups, the runs whose settings and metrics can be chosen."""
    others: list[Column]
    """The chosen settings, metrics and figures."""
    found: int
    counts: dict[str, int]
    gpus_busy: int
    gpus: int
    rising: int
    """Running runs whose reward is higher now than at their start."""
    grouping: Grouping | None
    """None: single runs are listed."""

    @property
    def running(self) -> int:
        return self.counts.get(RunStatus.RUNNING, 0)

    @property
    def pages(self) -> Pages:
        first = (self.query.page - 1) * A_PAGE
        return Pages(self.query.page, _last_page(self.found), first + 1, first + len(self.rows))

    @property
    def before(self) -> str | None:
        """The previous page's address, or None."""
        return self.query.address(page=self.query.page - 1) if self.query.page > 1 else None

    @property
    def after(self) -> str | None:
        return self.query.address(page=self.query.page + 1) if self.query.page < self.pages.last else None

    @cached_property
    def any(self) -> bool:
        """For an empty list: whether runs exist that the default filters hide."""
        return Run.objects.exists()

    @property
    def everything(self) -> str:
        return f"{reverse('runs')}?{RunListQuery(kind='all', archived='all').address()}"

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
        own = [replace(_column(each.key, each.words, self.query), title=each.title) for each in self.others]
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
    """For a setting or metric: its whole name."""


def listing(request: HttpRequest) -> RunListing:
    """The list, in a fixed number of queries for any number of runs."""
    query = RunListQuery.of(request.GET.dict())
    everything = queries.runs_for(request).select_related("reward_version__config")
    matching = query.matching(everything)
    total = matching.count()
    query = query.at_most(_last_page(total))
    others = chosen(query.columns)[1]
    found = _runs(everything, _page(query, matching), others)
    others = named(others, found)
    grouped = grouping(query, others, matching, total) if query.group else None
    counts, rising = _going(query.kind)
    busy = Lease.objects.filter(leasing.ACTIVE, resource__startswith="gpu:").count()
    gpus = sum(len(total or []) for total in Host.objects.values_list("inventory__gpus", flat=True))
    places = queueing.places() if any(run.latest().status == RunStatus.QUEUED for run in found) else {}
    rows = [_row(run, places, others) for run in found]
    return RunListing(query, rows, others, total, counts, gpus_busy=busy, gpus=gpus, rising=rising, grouping=grouped)


def choices(request: HttpRequest, listed: RunListing) -> Choices:
    query = listed.query
    unlike, same, metrics = offered(row.values for row in listed.rows)
    metrics = named(metrics, (row.run for row in listed.rows))
    user, every_tag = person(request), tags()
    owns = Exists(Run.objects.filter(owner=OuterRef("pk")))
    people = User.objects.filter(owns).order_by("username").values_list("username", flat=True)
    hosts = Host.objects.values_list("name", flat=True)
    health = [(value, words) for value, (words, _) in HEALTH_ASKED.items()]
    return Choices(
        status=_filter(query, "status", "Status", "Every status", [(each, each.capitalize()) for each in STATUSES]),
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
    known = {each.key: each for each in (*settings, *metrics, *listed.others) if each.kind != FIGURE}
    offers = [
        ColumnChoice(key, each.label or each.name, each in listed.others, each.title) for key, each in known.items()
    ]
    return [
        ("Usual", [ColumnChoice(key, words, key in listed.shown) for key, words in USUAL.items()]),
        ("More", [ColumnChoice(one.key, one.words, one in listed.others) for one in figure_columns()]),
        ("Metrics", [each for each in offers if not is_setting(each.key)]),
        ("Settings", [each for each in offers if is_setting(each.key)]),
    ]


def tags() -> list[str]:
    """All tags: the database sends each distinct set once, from an index."""
    sets = Run.objects.exclude(tags=[]).order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in sets for tag in tags})


def _last_page(total: int) -> int:
    return max(1, -(-total // A_PAGE))


def _page(query: RunListQuery, matching: QuerySet[Run]) -> list[str]:
    """The page's ids alone: sorting whole rows would make the database read all of them in full."""
    first = (query.page - 1) * A_PAGE
    return list(query.ordered(matching).values_list("pk", flat=True)[first : first + A_PAGE])


def _runs(everything: QuerySet[Run], ids: list[str], columns: list[Column]) -> list[Run]:
    runs = with_figures(everything, columns).in_bulk(ids)
    return [runs[pk] for pk in ids if pk in runs]


def _row(run: Run, places: Mapping[str, int], columns: list[Column]) -> RunListRow:
    attempt = run.latest()
    summary = queries.summary(run, places=places)
    values = Values(run)
    return RunListRow(run, summary, attempt, placement_text(attempt), values, values.cells(columns))


def _going(kind: str) -> tuple[dict[str, int], int]:
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
    asked = [column(query.group)] if is_setting(query.group) else []  # it may be of no run of this page
    return [(TAG, "Tag"), *{each.key: each.heading for each in (*asked, *unlike)}.items()]


def _sorts(others: Iterable[Column]) -> Iterator[tuple[str, str]]:
    """Orders to choose from in layouts without table headings, as on phones."""
    usual = {key: sort.words for key, sort in SORTS.items()}
    for key, words in {**usual, **{each.key: each.words for each in others}}.items():
        yield key, f"{words} ↑"
        yield f"-{key}", f"{words} ↓"


def _health(assessment: Mapping[str, Any]) -> HealthCell | None:
    verdict = assessment.get("verdict")
    if verdict not in HEALTH:
        return None
    order = list(HEALTH)
    findings = [finding for finding in assessment.get("findings", []) if finding.get("level") in ("bad", "warning")]
    findings.sort(key=lambda finding: order.index(finding["level"]))
    chip = {"bad": "bad", "warning": "warn", "well": "good"}[verdict]
    return HealthCell(verdict, HEALTH[verdict].lower(), chip, [str(finding.get("title", "")) for finding in findings])
