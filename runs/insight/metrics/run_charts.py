"""The run page's charts and tiles, derived from the frozen spec and the metrics reported so far.

The page reserves space for them before any number arrives.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.insight.metrics import chart_catalogue, episode_charts
from runs.insight.metrics.chart_catalogue import beta, updates_per_batch
from runs.insight.metrics.chart_spec import COLOURS, Chart, ChartGroup, Tile, lines_of
from runs.insight.metrics.series import kind_of
from workers.contract.run.jobs import KINDS
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EventKind

MARKED_CHARTS = frozenset(
    {"status", "requested", "resumed", "alert", EventKind.CHECKPOINT, EventKind.NOTE, EventKind.PROCESS_EXITED}
    | {EventKind.REWARD_FAILED, EventKind.TRAINED, EventKind.METRICS_LEFT_OUT, EventKind.HANG, EventKind.LIMIT}
)
COUNTER_OF_RATE = {"tokens_per_second": "num_tokens"}
"""Metric that the browser computes -> the metric that it is derived from."""
LIMITS_PREFIX = "limits/"
"""Prefix of metrics about limits, which the run page shows as bars."""
_NO_CHART = frozenset(
    {"epoch", "num_tokens", "total_flos", "train_loss", "train_runtime"}
    | {f"{of}_{rate}_per_second" for of in ("train", "eval") for rate in ("samples", "steps")}
    | {"eval_runtime", "eval_num_tokens", "eval_epoch", "job/done"}
)


def plan_of(run: Run) -> list[ChartGroup]:
    """Plan a run's charts: those that its spec implies, followed by charts of all other reported metrics."""
    try:
        planned_groups = plan(spec_of(run), gpus_of(run), run.last_metrics)
    except ContractError:  # the spec is of another version, but its metrics are still shown
        planned_groups = [chart_catalogue.of_machine(None, gpus_of(run))]
    return [*planned_groups, *unplanned_charts(run.last_metrics, planned_groups)]


def plan(spec: RunSpec, gpus: Sequence[int] = (), names: Collection[str] = ()) -> list[ChartGroup]:
    """Return the chart groups in reading order. A job has only the machine group. `names` are the reported metrics."""
    if spec.kind in KINDS:
        return [chart_catalogue.of_machine(spec, gpus)]
    training = [*chart_catalogue.of_training(spec, names), *episode_charts.of_episodes(spec, names)]
    return [*training, *chart_catalogue.of_rollout(spec), chart_catalogue.of_machine(spec, gpus)]


def unplanned_charts(names: Iterable[str], planned: Sequence[ChartGroup] = ()) -> list[ChartGroup]:
    """Return charts of the metrics that no planned chart shows. Metrics with a common prefix share a chart.

    Charts of evaluation metrics are folded, since most of them repeat other charts on held-out rows.
    """
    drawn_metrics = {*metrics(planned), *_NO_CHART}
    families = _families(planned)
    prefixes: dict[str, list[str]] = {}
    for name in sorted(name for name in set(names) - drawn_metrics if not name.startswith(LIMITS_PREFIX)):
        prefixes.setdefault(name.rpartition("/")[0] or name, []).append(name)
    used_ids: set[str] = set()
    charts = [chart for prefix, group in prefixes.items() for chart in _charts_for(prefix, group, used_ids, families)]
    evaluations = tuple(chart for chart in charts if chart.lines[0].metric.startswith("eval_"))
    training = tuple(chart for chart in charts if chart not in evaluations)
    groups = (ChartGroup("Other", training), ChartGroup("Other evaluation metrics", evaluations, folded=True))
    return [group for group in groups if group.charts]


def _families(planned: Sequence[ChartGroup]) -> dict[str, str]:
    """Return the chart title for each metric prefix that only one planned chart has."""
    titles: dict[str, set[str]] = {}
    for chart in (chart for group in planned for chart in group.charts):
        for line in chart.lines:
            titles.setdefault(line.metric.rpartition("/")[0], set()).add(chart.title)
    return {prefix: min(chart_titles) for prefix, chart_titles in titles.items() if prefix and len(chart_titles) == 1}


def _charts_for(prefix: str, names: list[str], used_ids: set[str], families: Mapping[str, str]) -> Iterator[Chart]:
    for start in range(0, len(names), COLOURS):
        batch = names[start : start + COLOURS]
        lines = lines_of((name, name.removeprefix(prefix).strip("/") or name) for name in batch)
        title = prefix if len(names) > len(lines) or len(lines) > 1 else lines[0].metric
        numbered_title = f"{title} ({start // COLOURS + 1})" if len(names) > COLOURS else title
        slug = "other-" + re.sub(r"[^a-z0-9]+", "-", numbered_title.lower()).strip("-")
        unique_id = next(i for n in range(len(used_ids) + 1) if (i := f"{slug}-{n}" if n else slug) not in used_ids)
        used_ids.add(unique_id)
        x = "step" if kind_of(prefix) == "train" else "time"
        if family := families.get(prefix):
            label = lines[0].label.replace("_", " ") if len(lines) == 1 else "other figures"
            numbered_title = numbered_title.replace(title, f"{family}: {label}", 1)
        yield Chart(unique_id, numbered_title, lines, x=x, help=", ".join(line.metric for line in lines))


def gpus_of(run: Run) -> tuple[int, ...]:
    """Return the GPUs of all attempts, starting with the latest attempt, since a resume may have moved the run."""
    attempts = sorted(run.attempts.all(), key=lambda attempt: -attempt.number)
    return tuple(dict.fromkeys(gpu for attempt in attempts for gpu in attempt.gpus))


def as_json(groups: Sequence[ChartGroup]) -> list[dict[str, Any]]:
    return [{**asdict(chart), "group": group.title} for group in groups for chart in group.charts]


def with_data(groups: Sequence[ChartGroup], names: Container[str]) -> list[ChartGroup]:
    """Return the charts that have a line among these metrics, without empty groups."""

    def is_recorded(chart: Chart) -> bool:
        return any(COUNTER_OF_RATE.get(line.metric, line.metric) in names for line in chart.lines)

    reduced_groups = (replace(group, charts=tuple(filter(is_recorded, group.charts))) for group in groups)
    return [group for group in reduced_groups if group.charts]


def metrics(groups: Sequence[ChartGroup]) -> list[str]:
    lines = [line for group in groups for chart in group.charts for line in chart.lines]
    names = (name for line in lines for name in (line.metric, line.band, line.evaluation) if name)
    return list(dict.fromkeys(COUNTER_OF_RATE.get(name, name) for name in names))


def labels(groups: Sequence[ChartGroup]) -> dict[str, str]:
    """Return a label for each metric: its chart's title, and the line's label if the chart has several lines."""
    charts = sorted((chart for group in groups for chart in group.charts), key=lambda chart: len(chart.lines))
    names: dict[str, str] = {}
    for chart in charts:
        for line in chart.lines:
            title = chart.title if len(chart.lines) == 1 else f"{chart.title}: {line.label}"
            names.setdefault(line.metric, title)
            names.setdefault(line.band, f"{title}, standard deviation")
            names.setdefault(line.evaluation, f"{title}, on held-out rows")
    return names


# --- tiles -----------------------------------------------------------------------------------------------------


def tiles(spec: RunSpec, gpus: Sequence[int] = ()) -> list[Tile]:
    """Plan the headline row. A tile whose value is constant by construction has a note instead."""
    row = [
        Tile("reward", "Reward", help="Weighted sum of the components, mean over the batch"),
        Tile("kl", "KL", help="Distance from the reference model", note="" if beta(spec) else "off: β is 0"),
        _clip_tile(spec),
        Tile("entropy", "Entropy", help="Mean token entropy, in nats"),
        Tile("completions/mean_length", "Length", "tokens", help="Mean completion length"),
        Tile(
            "frac_reward_zero_std",
            "Zero-variance",
            "percent",
            help="Share of prompt groups in which all completions got the same reward, so nothing is learned from them",
        ),
        Tile(
            "tokens_per_second", "Speed", "rate", help="Prompt and completion tokens of a step divided by its duration"
        ),
    ]
    if gpus:
        name = f"gpu/{gpus[0]}/memory_mib"
        row.append(Tile(name, f"GPU {gpus[0]}", "mib", help="Memory in use on the run's first GPU"))
    else:
        row.append(Tile("host/memory_mib", "Host memory", "mib", help="Memory in use on the host"))
    return row


def _clip_tile(spec: RunSpec) -> Tile:
    lines = chart_catalogue.clip_lines(spec)
    hint = "Share of tokens whose ratio was clipped"
    if not lines:
        return Tile("", "Clipped", help=hint, note="this loss doesn't clip")
    note = "0: one update per batch" if spec.ahead else "0: on-policy"
    return Tile(lines[0].metric, "Clipped", "percent", help=hint, note=note if updates_per_batch(spec) <= 1 else "")
