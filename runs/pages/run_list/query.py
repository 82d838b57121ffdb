"""The run list's address with its filters, order and page, and the query for the matching runs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from django.db.models import (
    BooleanField,
    Case,
    Exists,
    F,
    FloatField,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.expressions import OrderBy
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Lower

from runs.engine.models import Attempt, Run
from runs.engine.states import ACTIVE, RunStatus
from runs.pages.run_list import columns
from workers.contract.run import jobs
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.learnability import CHECK

TRIAL = "trial"
KINDS: dict[str, tuple[str, Q]] = {
    "": ("Training runs", Q(kind="train")),
    CHECK: ("Learnability checks", Q(kind=CHECK)),
    EVALUATION: ("Evaluations", Q(kind=EVALUATION)),
    TRIAL: ("Trials of profiles", Q(kind=TRIAL)),
    **{kind: (job.many, Q(kind=kind)) for kind, job in jobs.KINDS.items()},
    "all": ("Every kind", Q()),
}
ARCHIVED: dict[str, tuple[str, Q]] = {
    "": ("Not archived", Q(archived_at=None)),
    "only": ("Archived", ~Q(archived_at=None)),
    "all": ("Archived or not", Q()),
}
HEALTH = {"bad": "Bad", "warning": "Needs attention", "well": "Healthy"}
HEALTH_FILTERS: dict[str, tuple[str, list[str]]] = {
    "unwell": ("Unhealthy", ["bad", "warning"]),
    **{verdict: (word, [verdict]) for verdict, word in HEALTH.items()},
}
STATUSES = ["active", *RunStatus]
CHOICES = {"status": STATUSES, "health": HEALTH_FILTERS, "kind": KINDS, "archived": ARCHIVED}
MAX_CHARS = {"columns": 2000, "having": 500}
"""Maximum lengths of long parameters, in characters; the others have DEFAULT_MAX_CHARS."""
DEFAULT_MAX_CHARS = 100

_LATEST = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number")
_HOST = Subquery(_LATEST.values("host__name")[:1])
"""The host of a run's latest attempt. It is added as an alias, which costs nothing if it is unused."""
_STATUS_ORDER = ["running", "stopping", "starting", "queued", "failed", "stopped", "succeeded"]
"""Statuses in sorting order: active runs first, then ended ones that need attention."""


@dataclass(frozen=True)
class Sort:
    label: str
    by: columns.Ordered
    first: str = ""
    """The direction after the first click: `-` is descending."""
    flipped: bool = False
    """True if the displayed value increases as the stored one decreases, as with an age."""
    has_nulls: bool = True


def _ranks(lookup: str, values: Iterable[str]) -> Case:
    cases = [When(**{lookup: value}, then=rank) for rank, value in enumerate(values)]
    return Case(*cases, output_field=IntegerField())


_SHARE = Case(When(max_steps__gt=0, then=Cast("step", FloatField()) / F("max_steps")), output_field=FloatField())
SORTS: dict[str, Sort] = {
    # The ranks are computed inside the subquery, because outside each case would run the subquery again.
    "status": Sort("Status", Subquery(_LATEST.values_list(_ranks("status", _STATUS_ORDER))[:1])),
    "name": Sort("Name", Lower("name"), has_nulls=False),
    "model": Sort("Model", KeyTextTransform("path", KeyTransform("model", "spec"))),
    "progress": Sort("Progress", _SHARE, first="-"),
    "reward": Sort("Reward", Cast(KeyTextTransform("reward", "last_metrics"), FloatField()), first="-"),
    "health": Sort("Health", _ranks("health__verdict", HEALTH)),
    "where": Sort("Where", F("latest_host")),
    "age": Sort("Age", F("created_at"), flipped=True, has_nulls=False),
    "by": Sort("By", F("owner__username")),
}
DEFAULT_SORT = "age"
TAG = "tag"
"""Value of `group` for groups by tag; a run is in the group of each of its tags."""


class HasTag(Func):
    """Condition that a JSON list contains a string, in the syntax of each database."""

    output_field = BooleanField()

    def as_sqlite(self, compiler, connection, **extra):  # type: ignore[no-untyped-def]
        template = "EXISTS (SELECT 1 FROM JSON_EACH(%(expressions)s)"
        return self.as_sql(compiler, connection, template=template, arg_joiner=") WHERE value = ", **extra)

    def as_postgresql(self, compiler, connection, **extra):  # type: ignore[no-untyped-def]
        return self.as_sql(compiler, connection, template="(%(expressions)s)", arg_joiner=" ? ", **extra)


@dataclass(frozen=True)
class RunListQuery:
    """The parameters of the list's address. Invalid values are ignored."""

    q: str = ""
    status: str = ""
    health: str = ""
    tag: str = ""
    by: str = ""
    host: str = ""
    kind: str = ""
    archived: str = ""
    having: str = ""
    """A setting and its value as JSON, such as `grpo.seed=42`; `null` matches runs without the setting."""
    columns: str = ""
    """The shown columns (see runs.pages.run_list.columns), comma-separated; the standard ones if empty."""
    group: str = ""
    """Key by which runs are grouped: `tag`, or a setting's column; "" for no grouping."""
    sort: str = DEFAULT_SORT
    """One of SORTS, or a setting's or metric's column, with a minus for the opposite direction."""
    page: int = 1

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "RunListQuery":
        entered = {f.name: parameters.get(f.name, "").replace("\0", "").strip() for f in fields(cls)}
        texts = {name: value[: MAX_CHARS.get(name, DEFAULT_MAX_CHARS)] for name, value in entered.items()}
        sort, page = texts.pop("sort"), texts.pop("page")
        texts["columns"] = columns.valid_columns(texts["columns"])
        valid_values = {
            **{name: texts[name] in values for name, values in CHOICES.items()},
            "group": texts["group"] == TAG or columns.is_setting(texts["group"]),
            "having": _setting_and_value(texts["having"]) is not None,
        }
        return cls(
            **{name: text if valid_values.get(name, True) else "" for name, text in texts.items()},
            sort=sort if sort.removeprefix("-") in SORTS or columns.is_valid(sort.removeprefix("-")) else DEFAULT_SORT,
            page=max(1, int(page[:9])) if page.isascii() and page.isdigit() else 1,
        )

    def address(self, **changes: str | int) -> str:
        """Return the list's query string with these changes, without default values. It refers to the first page unless
        `page` is given."""
        target = replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]
        values = {f.name: getattr(target, f.name) for f in fields(self)}
        return urlencode({name: value for name, value in values.items() if value != _DEFAULTS[name]})

    @property
    def filtered(self) -> bool:
        return bool(self.filters())

    def filters(self) -> dict[str, str]:
        """Return the labels of the active filters by name."""
        labels = {
            "q": f"“{self.q}”",
            "status": self.status,
            "health": f"health: {HEALTH_FILTERS[self.health][0].lower()}" if self.health else "",
            "tag": f"tag: {self.tag}",
            "by": f"by {self.by}",
            "host": f"on {self.host}",
            "kind": KINDS[self.kind][0].lower(),
            "archived": ARCHIVED[self.archived][0].lower(),
            "having": self._having_label(),
        }
        return {name: label for name, label in labels.items() if getattr(self, name)}

    def _having_label(self) -> str:
        name, _, value = self.having.partition("=")
        label = columns.column(columns.SETTING + name).label
        return f"{label}: not set" if value == "null" else f"{label} = {value}"

    @property
    def only_archived(self) -> bool:
        return list(self.filters()) == ["archived"] and self.archived == "only"

    def matching(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        runs = runs.filter(KINDS[self.kind][1], ARCHIVED[self.archived][1])
        runs = runs.alias(latest_host=_HOST)
        for word in self.q.split():
            runs = runs.filter(Q(name__icontains=word) | Q(pk__startswith=word) | Q(owner__username__icontains=word))
        if self.tag:
            runs = runs.filter(HasTag("tags", Value(self.tag)))
        if self.by:
            runs = runs.filter(owner__username=self.by)
        if self.health:
            runs = runs.filter(health__verdict__in=HEALTH_FILTERS[self.health][1])
        if self.host:
            runs = runs.filter(pk__in=_runs_whose_latest(Attempt.objects.filter(host__name=self.host)))
        if having := _setting_and_value(self.having):
            setting, value = having
            runs = runs.alias(having=columns.expression(columns.SETTING + setting))
            runs = runs.filter(having__isnull=True) if value is None else runs.filter(having=value)
        return runs.filter(pk__in=_with_status(self.status)) if self.status else runs

    def ordered(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        """Sort the runs. In both directions, runs without the value come last, and equal ones are sorted newest
        first."""
        key, is_descending = self.sort.removeprefix("-"), self.sort.startswith("-")
        column = SORTS[key] if key in SORTS else Sort(key, columns.expression(key))
        # The database uses an index for the order only without a clause about nulls.
        nulls_last = True if column.has_nulls else None
        order = OrderBy(column.by, descending=is_descending != column.flipped, nulls_last=nulls_last)
        return runs.order_by(order, "-created_at", "pk")


def _with_status(status: str) -> QuerySet[Attempt, Any]:
    if status == "active" or status in ACTIVE:  # an active attempt is its run's latest
        attempts = Attempt.objects.filter(status__in=ACTIVE if status == "active" else [status])
        return attempts.order_by().values("run_id")
    return _runs_whose_latest(Attempt.objects.filter(status=status))


def _runs_whose_latest(attempts: QuerySet[Attempt]) -> QuerySet[Attempt, Any]:
    """Find the runs whose latest attempt is one of these, without scanning all runs."""
    later_attempts = Attempt.objects.filter(run=OuterRef("run"), number__gt=OuterRef("number"))
    return attempts.exclude(Exists(later_attempts)).order_by().values("run_id")


def _setting_and_value(having: str) -> tuple[str, Any] | None:
    setting, equals, value = having.partition("=")
    try:
        return (setting, json.loads(value)) if setting and equals else None
    except ValueError:
        return None


_DEFAULTS = {f.name: f.default for f in fields(RunListQuery)}
