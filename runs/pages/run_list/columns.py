"""The run list's columns: the standard ones, and any setting or metric of the runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db.models import F, QuerySet, Subquery
from django.db.models.expressions import Expression
from django.db.models.fields.json import KeyTransform
from django.utils.text import capfirst

from controlplane.platform.templatetags.figures import NO_VALUE, significant, size_in_words
from runs.engine import disk
from runs.engine.models import Run
from runs.insight.comparing import comparison
from runs.insight.metrics import run_charts
from runs.launch.new_run.fields.table import ARGUMENTS

USUAL_COLUMNS = {
    "model": "Model",
    "progress": "Progress",
    "reward": "Reward",
    "health": "Health",
    "where": "Where",
    "age": "Age",
    "by": "By",
}
"""Labels of the columns that are shown unless others are chosen; status and name are always shown."""
SETTING, METRIC, FIGURE = "setting.", "metric.", "figure."
FIGURES = {"disk": "Disk"}
"""Labels of other values that can be columns; `disk` is the run's size on all hosts."""
MAX_COLUMNS = 20
Ordered = Expression | F | Subquery
_FORM_LABELS = {f"grpo.{field.name}": field.label for field in ARGUMENTS}
_PATHS = {"dataset": "data.name", "profile": "hardware.profile", "environment": "episodes.name"}
"""Paths in the spec by the setting's name in comparison.settings, where they differ."""


@dataclass(frozen=True)
class Column:
    """A chosen setting, metric or figure."""

    kind: str
    name: str
    chart_label: str = field(default="", compare=False)
    """A metric's label in the charts, which `with_labels` sets."""

    @property
    def key(self) -> str:
        return self.kind + self.name

    @property
    def label(self) -> str:
        label = self.chart_label or FIGURES.get(self.name) or _FORM_LABELS.get(self.name)
        return label or self.name.removeprefix("grpo.").replace("_", " ")

    @property
    def heading(self) -> str:
        """The label with a capital first letter, except for labels of the New run page: a capital β looks like B."""
        return self.label if self.name in _FORM_LABELS else capfirst(self.label)

    @property
    def title(self) -> str:
        return f"{self.kind.removesuffix('.').capitalize()} {self.name}"

    def text(self, value: Any) -> str:
        if self.kind == FIGURE:
            return size_in_words(value)
        number = self.kind == METRIC and isinstance(value, (int, float))
        return significant(value) if number else comparison.text(value)


def is_valid(key: str) -> bool:
    figure = key.startswith(FIGURE) and key.removeprefix(FIGURE) in FIGURES
    return is_setting(key) or (key.startswith(METRIC) and key != METRIC) or figure


def is_setting(key: str) -> bool:
    return key.startswith(SETTING) and key != SETTING


def valid_columns(columns: str) -> str:
    """Return the valid columns of an address, in order and without duplicates, or "" if they are the standard ones."""
    keys = dict.fromkeys(key for key in columns.split(",") if key in USUAL_COLUMNS or is_valid(key))
    selection = ",".join(list(keys)[:MAX_COLUMNS])
    return "" if selection == ",".join(USUAL_COLUMNS) else selection


def split_columns(columns: str) -> tuple[set[str], list[Column]]:
    """Split an address's columns into the standard ones that are shown and the extra ones."""
    keys = columns.split(",") if columns else list(USUAL_COLUMNS)
    return {key for key in keys if key in USUAL_COLUMNS}, [column(key) for key in keys if key not in USUAL_COLUMNS]


def column(key: str) -> Column:
    kind, _, name = key.partition(".")
    return Column(f"{kind}.", name)


def with_labels(columns: Iterable[Column], runs: Iterable[Run]) -> list[Column]:
    """Return the columns, with metrics labelled as in these runs' charts."""
    columns = list(columns)
    labels: dict[str, str] = {}
    covered_names: set[str] = set()
    for run in runs if any(column.kind == METRIC for column in columns) else ():
        if not covered_names.issuperset(run.last_metrics):
            covered_names.update(run.last_metrics)
            labels = {**run_charts.labels(run_charts.plan_of(run)), **labels}
    return [
        replace(column, chart_label=labels.get(column.name, "")) if column.kind == METRIC else column
        for column in columns
    ]


class Values:
    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def settings(self) -> dict[str, Any]:
        return dict(comparison.settings(self.run))

    def value(self, column: Column) -> Any:
        if column.kind == FIGURE:
            return getattr(self.run, column.name, None)  # see with_figures
        return (self.run.last_metrics if column.kind == METRIC else self.settings).get(column.name)

    def cells(self, columns: Sequence[Column]) -> list[tuple[str, str]]:
        pairs = [(column, self.value(column)) for column in columns]
        return [(column.label, NO_VALUE if value is None else column.text(value)) for column, value in pairs]


def with_figures(runs: QuerySet[Run], columns: Sequence[Column]) -> QuerySet[Run]:
    return runs.annotate(disk=disk.sum_of_run()) if any(column.kind == FIGURE for column in columns) else runs


def expression(key: str) -> Ordered:
    """Return the database expression of a column's value, which is NULL if a run has none. Numbers sort as numbers.
    Settings inside a list, such as a reward's, are always NULL."""
    chosen_column = column(key)
    if chosen_column.kind == FIGURE:
        return disk.sum_of_run()
    if chosen_column.kind == METRIC:
        return KeyTransform(chosen_column.name, "last_metrics")
    name = chosen_column.name
    if name == "reward config":
        return F("reward_version__config__name")
    value: Ordered = F("spec")
    for part in _PATHS.get(name, name).split("."):
        value = KeyTransform(part, value)
    return value


def offered_columns(runs: Iterable[Values]) -> tuple[list[Column], list[Column], list[Column]]:
    """Return the settings that differ between these runs, the settings that don't, and the metrics, sorted by name."""
    first_values: dict[str, Any] = {}
    varying: set[str] = set()
    metrics: set[str] = set()
    for count, run in enumerate(runs):
        metrics |= set(run.run.last_metrics)
        if count:
            varying |= first_values.keys() ^ run.settings.keys()
        varying |= {name for name, value in run.settings.items() if first_values.setdefault(name, value) != value}
    settings = [[Column(SETTING, name) for name in sorted(names)] for names in (varying, first_values.keys() - varying)]
    return settings[0], settings[1], [Column(METRIC, name) for name in sorted(metrics)]
