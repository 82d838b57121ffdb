"""The run list's columns: the usual ones, and any setting or metric of the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db.models import F, QuerySet, Subquery
from django.db.models.expressions import Expression
from django.db.models.fields.json import KeyTransform
from django.utils.text import capfirst

from controlplane.platform.templatetags.figures import NOTHING, significant, size_in_words
from runs.engine import disk
from runs.engine.models import Run
from runs.insight.comparing import comparison
from runs.insight.metrics import run_charts
from runs.launch.new_run.fields.table import ARGUMENTS

USUAL = {
    "model": "Model",
    "progress": "Progress",
    "reward": "Reward",
    "health": "Health",
    "where": "Where",
    "age": "Age",
    "by": "By",
}
"""Columns that are shown unless others are chosen; status and name always are."""
SETTING, METRIC, FIGURE = "setting.", "metric.", "figure."
FIGURES = {"disk": "Disk"}
"""Further figures of runs: bytes on all hosts, as measured there."""
MOST = 20
"""Chosen columns of an address."""
Ordered = Expression | F | Subquery
"""Types of expressions that can order a list."""
_ELSEWHERE: dict[str, Ordered] = {"reward config": F("reward_version__config__name")}
_FORM_WORDS = {f"grpo.{field.name}": field.label for field in ARGUMENTS}
"""Settings as New run has them."""
_PATHS = {"dataset": "data.name", "profile": "hardware.profile", "environment": "episodes.name"}
"""Settings that comparison.settings puts into words -> where the spec has them."""


@dataclass(frozen=True)
class Column:
    """A chosen setting or metric."""

    kind: str
    """SETTING, METRIC or FIGURE."""
    name: str
    label: str = field(default="", compare=False)
    """A metric's name in the charts; see `named`."""

    @property
    def key(self) -> str:
        return self.kind + self.name

    @property
    def words(self) -> str:
        words = self.label or FIGURES.get(self.name) or _FORM_WORDS.get(self.name)
        return words or self.name.removeprefix("grpo.").replace("_", " ")

    @property
    def heading(self) -> str:
        """Its words with a capital, but for those of New run: a capital β would be another letter."""
        return self.words if self.name in _FORM_WORDS else capfirst(self.words)

    @property
    def title(self) -> str:
        return f"{self.kind.removesuffix('.').capitalize()} {self.name}"

    def text(self, value: Any) -> str:
        if self.kind == FIGURE:
            return size_in_words(value)
        number = self.kind == METRIC and isinstance(value, (int, float))
        return significant(value) if number else comparison.text(value)


def valid(key: str) -> bool:
    """True if `key` names a figure, or a setting or a metric, known or not."""
    figure = key.startswith(FIGURE) and key.removeprefix(FIGURE) in FIGURES
    return is_setting(key) or (key.startswith(METRIC) and key != METRIC) or figure


def is_setting(key: str) -> bool:
    return key.startswith(SETTING) and key != SETTING


def parsed(words: str) -> str:
    """The columns of an address without what can be none, in order and once each."""
    keys = dict.fromkeys(key for key in words.split(",") if key in USUAL or valid(key))
    chosen = ",".join(list(keys)[:MOST])
    return "" if chosen == ",".join(USUAL) else chosen


def chosen(columns: str) -> tuple[set[str], list[Column]]:
    """The usual columns that are shown, and the others."""
    keys = columns.split(",") if columns else list(USUAL)
    return {key for key in keys if key in USUAL}, [column(key) for key in keys if key not in USUAL]


def figure_columns() -> list[Column]:
    return [Column(FIGURE, name) for name in FIGURES]


def column(key: str) -> Column:
    kind, _, name = key.partition(".")
    return Column(f"{kind}.", name)


def named(columns: Iterable[Column], runs: Iterable[Run]) -> list[Column]:
    """The same, with what the charts of these runs call each metric. Runs without a new metric are not looked at."""
    columns = list(columns)
    words: dict[str, str] = {}
    seen: set[str] = set()
    for run in runs if any(each.kind == METRIC for each in columns) else ():
        if not seen.issuperset(run.last_metrics):
            seen.update(run.last_metrics)
            words = {**run_charts.words(run_charts.plan_of(run)), **words}
    return [replace(each, label=words.get(each.name, "")) if each.kind == METRIC else each for each in columns]


class Values:
    """A run's values for the columns."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Flattened when they are first asked for."""
        return dict(comparison.settings(self.run))

    @property
    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = self.run.last_metrics
        return metrics

    def of(self, columns: Sequence[Column]) -> list[Any]:
        """Of each column; None: nothing."""
        return [self._known(each.kind).get(each.name) for each in columns]

    def cells(self, columns: Sequence[Column]) -> list[tuple[str, str]]:
        """(heading, text) of each."""
        pairs = zip(columns, self.of(columns), strict=True)
        return [(each.words, NOTHING if value is None else each.text(value)) for each, value in pairs]

    def _known(self, kind: str) -> dict[str, Any]:
        if kind == FIGURE:
            return {"disk": getattr(self.run, "disk", None)}  # see with_figures
        return self.metrics if kind == METRIC else self.settings


def with_figures(runs: QuerySet[Run], columns: Sequence[Column]) -> QuerySet[Run]:
    """Add the figures that these columns need."""
    return runs.annotate(disk=disk.sum_of_run()) if any(each.kind == FIGURE for each in columns) else runs


def expression(key: str) -> Ordered:
    """The same in the database. Numbers sort as numbers; what a run lacks is NULL. Settings below a list, such as
    those of a reward by its name, are always NULL here."""
    asked = column(key)
    if asked.kind == FIGURE:
        return disk.sum_of_run()
    if asked.kind == METRIC:
        return KeyTransform(asked.name, "last_metrics")
    name = asked.name
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    found: Ordered = F("spec")
    for part in _PATHS.get(name, name).split("."):
        found = KeyTransform(part, found)
    return found


def offered(runs: Iterable[Values]) -> tuple[list[Column], list[Column], list[Column]]:
    """The settings that differ between these runs, those that don't, and the metrics, each by name."""
    first: dict[str, Any] = {}
    unlike: set[str] = set()
    metrics: set[str] = set()
    for count, run in enumerate(runs):
        metrics |= set(run.metrics)
        if count:
            unlike |= first.keys() ^ run.settings.keys()
        unlike |= {name for name, value in run.settings.items() if first.setdefault(name, value) != value}
    settings = [[Column(SETTING, name) for name in sorted(names)] for names in (unlike, first.keys() - unlike)]
    return settings[0], settings[1], [Column(METRIC, name) for name in sorted(metrics)]
