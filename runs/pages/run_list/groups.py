"""The run list grouped by tag or setting: each group's number of runs, and the mean and spread of their results."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from runs.engine.gain import Spread, final_reward, gain
from runs.engine.models import Run
from runs.insight.comparing import comparison
from runs.pages.run_list import columns
from runs.pages.run_list.query import TAG, RunListQuery

MAX_GROUPED_RUNS = 10_000
"""Maximum number of grouped runs: the newest. A page reads a few columns of each."""
_RunFigures = tuple[str, list[float | None]]
"""A run's id, and its last reward, its gain and its chosen metrics."""


def grouping(
    query: RunListQuery, chosen_columns: Sequence[columns.Column], matching: QuerySet[Run], total: int
) -> dict[str, Any]:
    """Group the matching runs, with their chosen metrics, and return the template context, in which the groups are
    ordered by mean reward, highest first. A run with several tags is in several groups."""
    metrics = [column for column in chosen_columns if column.kind == columns.METRIC]
    by_value: dict[str, list[_RunFigures]] = defaultdict(list)
    value_of = "tags" if query.group == TAG else "grouped_by"
    if query.group != TAG:
        matching = matching.annotate(grouped_by=columns.expression(query.group))
    rows = matching.order_by("-created_at").values_list("pk", value_of, "reward_ends", "last_metrics")[
        :MAX_GROUPED_RUNS
    ]
    for pk, value, ends, newest_values in rows:
        for group_value in (value or [None]) if query.group == TAG else [value]:
            figures = [final_reward(ends), gain(ends), *(_number(newest_values.get(column.name)) for column in metrics)]
            by_value[json.dumps(group_value)].append((pk, figures))
    groups = [_group(query, json.loads(value), metrics, runs) for value, runs in by_value.items()]
    groups.sort(key=lambda group: (group["reward"].mean is None, -(group["reward"].mean or 0), group["label"]))
    rewards = [group["reward"] for group in groups if group["reward"].mean is not None]
    return {
        "label": "Tag" if query.group == TAG else columns.column(query.group).heading,
        "metrics": metrics,
        "groups": groups,
        "low": min((reward.low for reward in rewards), default=None),
        "high": max((reward.high for reward in rewards), default=None),
        "left_out": max(0, total - MAX_GROUPED_RUNS),
    }


def _group(
    query: RunListQuery, value: Any, metrics: Sequence[columns.Column], runs: list[_RunFigures]
) -> dict[str, Any]:
    if query.group == TAG:
        label, address = value or "no tag", query.address(group="", tag=value) if value else ""
    else:
        column = columns.column(query.group)
        label = comparison.ABSENT_TEXT if value is None else comparison.text(value)
        address = query.address(group="", having=f"{column.name}={json.dumps(value)}")
    reward, gains, *spreads = [Spread.of(values) for values in zip(*(figures for _, figures in runs), strict=True)]
    ids = [pk for pk, _ in runs]
    return {
        "label": label,
        "address": address,  # empty if no filter selects exactly this group
        "ids": ids,
        "compared": ",".join(ids[: comparison.MAX_RUNS]),
        "reward": reward,
        "gain": gains,
        "metrics": list(zip(metrics, spreads, strict=True)),
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
