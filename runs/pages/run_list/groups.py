"""The run list in groups by tag or setting: how many runs each has, and the mean and spread of their results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from runs.engine.gain import Spread, gain, last
from runs.engine.models import Run
from runs.insight.comparing import comparison
from runs.pages.run_list import columns
from runs.pages.run_list.query import TAG, RunListQuery

MOST = 10_000
"""Grouped runs, the newest; a page reads a few columns of each."""
_RunFigures = tuple[str, list[float | None]]
"""A run's id; its last reward, its gain and its chosen metrics."""


@dataclass(frozen=True)
class RunListGroup:
    label: str
    address: str
    """The run list of this group alone; empty where no filter finds it."""
    ids: list[str]
    """Newest first."""
    reward: Spread
    """Spread of the runs' last rewards (runs.engine.gain.last)."""
    gain: Spread
    metrics: list[tuple[columns.Column, Spread]]
    """Spread of each chosen metric's newest values."""

    @property
    def compared(self) -> str:
        return ",".join(self.ids[: comparison.MAX_RUNS])


@dataclass(frozen=True)
class Grouping:
    label: str
    metrics: list[columns.Column]
    groups: list[RunListGroup]
    """The highest mean reward first."""
    left_out: int
    """Older runs beyond MOST."""

    @property
    def low(self) -> float | None:
        """The lowest reward of all groups."""
        return min((group.reward.low for group in self.groups if group.reward.low is not None), default=None)

    @property
    def high(self) -> float | None:
        return max((group.reward.high for group in self.groups if group.reward.high is not None), default=None)


def grouping(query: RunListQuery, chosen: Sequence[columns.Column], matching: QuerySet[Run], total: int) -> Grouping:
    """Group the matching runs, with their chosen metrics; a run with several tags is in several groups."""
    metrics = [column for column in chosen if column.kind == columns.METRIC]
    by_value: dict[str, list[_RunFigures]] = defaultdict(list)
    value_of = "tags" if query.group == TAG else "grouped_by"
    if query.group != TAG:
        matching = matching.annotate(grouped_by=columns.expression(query.group))
    rows = matching.order_by("-created_at").values_list("pk", value_of, "reward_ends", "last_metrics")[:MOST]
    for pk, value, ends, newest in rows:
        for group_value in (value or [None]) if query.group == TAG else [value]:
            figures = [last(ends), gain(ends), *(_number(newest.get(column.name)) for column in metrics)]
            by_value[json.dumps(group_value)].append((pk, figures))
    groups = [_group(query, json.loads(value), metrics, runs) for value, runs in by_value.items()]
    groups.sort(key=lambda group: (group.reward.mean is None, -(group.reward.mean or 0), group.label))
    label = "Tag" if query.group == TAG else columns.column(query.group).heading
    return Grouping(label, metrics, groups, max(0, total - MOST))


def _group(query: RunListQuery, value: Any, metrics: Sequence[columns.Column], runs: list[_RunFigures]) -> RunListGroup:
    if query.group == TAG:
        label, address = value or "no tag", query.address(group="", tag=value) if value else ""
    else:
        column = columns.column(query.group)
        label = comparison.ABSENT if value is None else comparison.text(value)
        address = query.address(group="", having=f"{column.name}={json.dumps(value)}")
    reward, gains, *newest = [Spread.of(values) for values in zip(*(figures for _, figures in runs), strict=True)]
    return RunListGroup(label, address, [pk for pk, _ in runs], reward, gains, list(zip(metrics, newest, strict=True)))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
