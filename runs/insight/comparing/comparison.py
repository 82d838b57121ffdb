"""Comparison of runs: colours, differing settings, metrics and cost."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zlib import crc32

from django.http import HttpRequest

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.prices import Money, gpu_hour, total
from controlplane.platform.http.keyset import split_list
from runs.engine import queries
from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE
from runs.insight.metrics import run_charts
from runs.insight.metrics.chart_spec import ChartGroup
from workers.contract.run.hardware import HardwareSpec, precision_of
from workers.contract.run.settings import IDENTITY_PATHS
from workers.contract.stack.training_rules import TRL_DEFAULTS
from workers.contract.wire.documents import ContractError, from_dict

MAX_RUNS = 20
"""Maximum number of runs in a comparison: more curves can't be told apart in one chart."""
MAX_METRICS = 12
DEFAULT_METRICS = ("reward", "kl", "entropy", "completions/mean_length", "frac_reward_zero_std", "step_time")
DEFAULT_EVALUATION_METRICS = ("eval_reward", "eval_completions/mean_length")
"""Metrics shown first if the runs are evaluations, which train nothing."""
COLOURS = 8
DASHES = ("solid", "dash", "dot")
ABSENT_TEXT = "not set"
EMPTY_VALUES: tuple[Any, ...] = (None, {}, [])
PROFILE_FIELDS = frozenset(
    {"optim", "gradient_checkpointing", "use_liger_kernel", "vllm_max_model_length", "ddp_timeout"}
)
"""GRPOConfig fields that the profile sets if the run omits them, regardless of TRL's default."""
PRECISION_SETTINGS = frozenset({"hardware.precision", "grpo.bf16", "grpo.fp16"})


@dataclass(frozen=True)
class Look:
    """A run's line style: a combination of colour and dash that no other run of the comparison has."""

    colour: str
    dash: str


@dataclass(frozen=True)
class ChosenRuns:
    """The runs that a URL requests, and which of them are missing or too many."""

    runs: list[Run]
    missing: list[str]
    beyond: int
    """Number of requested runs beyond the limit."""

    @property
    def ids(self) -> str:
        return ",".join(run.pk for run in self.runs)


@dataclass(frozen=True)
class SettingDifference:
    name: str
    values: "list[Value]"


@dataclass(frozen=True)
class Value:
    text: str
    absent: bool
    as_first: bool

    @property
    def tone(self) -> str:
        if self.absent:
            return "muted"
        return "" if self.as_first else "other"


@dataclass(frozen=True)
class RunCost:
    """The cost of a run so far, over all its attempts."""

    seconds: float | None
    gpu_hours: float | None
    """GPU-hours; None if the run has never held a GPU."""
    cost: str
    """Cost at the hosts' current prices, or "" if no host has a price."""


@dataclass(frozen=True)
class ComparedMetric:
    """A metric that can be compared, with its title on the run page."""

    name: str
    title: str
    format: str = "number"


def chosen_runs(request: HttpRequest, limit: int = MAX_RUNS) -> ChosenRuns:
    requested_ids = (run_id.strip() for run_id in request.GET.get("runs", "").split(","))
    ids = queries.valid_ids(dict.fromkeys(filter(None, requested_ids)))
    by_id = queries.runs_for(request).select_related("owner", "reward_version__config").in_bulk(ids[: 2 * limit])
    runs = [by_id[run_id] for run_id in ids if run_id in by_id]
    missing_ids = [run_id for run_id in ids[: 2 * limit] if run_id not in by_id]
    return ChosenRuns(runs[:limit], missing_ids, max(0, len(ids) - len(missing_ids) - limit))


def looks(runs: Iterable[Run]) -> dict[str, Look]:
    """Choose each run's line style: a colour that depends on its id, or the next one if an older run has that."""
    looks_by_run: dict[str, Look] = {}
    used_styles: set[tuple[int, int]] = set()
    for run in sorted(runs, key=lambda run: (run.created_at, run.pk)):
        preferred_colour = crc32(run.pk.encode())
        styles = ((dash, (preferred_colour + step) % COLOURS) for dash in range(len(DASHES)) for step in range(COLOURS))
        dash, colour = next((style for style in styles if style not in used_styles), (0, preferred_colour % COLOURS))
        used_styles.add((dash, colour))
        looks_by_run[run.pk] = Look(f"c{colour + 1}", DASHES[dash])
    return looks_by_run


def differences(runs: Sequence[Run]) -> tuple[list[SettingDifference], int]:
    """Return the effective settings in which the runs differ, and the number of settings that they share."""
    settings_by_run = [dict(settings(run)) for run in runs]
    names = dict.fromkeys(name for values in settings_by_run for name in values)
    for values, left_to_trl in zip(settings_by_run, _trl_defaults(runs), strict=True):
        values.update((name, left_to_trl[name]) for name in names if name not in values and name in left_to_trl)
    differing_settings, equal_count = [], 0
    for name in names:
        formatted = [text(values[name]) if name in values else ABSENT_TEXT for values in settings_by_run]
        if len(set(formatted)) < 2:
            equal_count += 1
            continue
        pairs = zip(formatted, settings_by_run, strict=True)
        shown_values = [Value(shown, name not in values, shown == formatted[0]) for shown, values in pairs]
        differing_settings.append(SettingDifference(name, shown_values))
    return differing_settings, equal_count


def settings(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield a run's launch settings as (path, value), user-given names first.

    They are read from the stored JSON, so that specs of other versions can be compared. Precision is a single setting,
    whether it comes from the profile or from the run's flags.
    """
    spec: dict[str, Any] = run.spec
    data, hardware = part(spec, "data"), part(spec, "hardware")
    yield "dataset", f"{data.get('name')} v{data.get('version')}"
    yield "reward config", str(run.reward_version) if run.reward_version else "deleted since"
    yield "environment", _environment(part(spec, "episodes"))
    yield "profile", hardware.get("profile") or "none"
    excluded_keys = IDENTITY_PATHS
    with suppress(ContractError):
        yield "precision", str(precision_of(from_dict(HardwareSpec, hardware), part(spec, "grpo")))
        excluded_keys |= PRECISION_SETTINGS
    yield from ((name, value) for name, value in _flat(spec) if name not in excluded_keys)


def _environment(episodes: Mapping[str, Any]) -> str:
    if gateway := part(episodes, "gateway"):
        return f"driven by {gateway.get('kind')}"
    return f"{episodes.get('name')} v{episodes.get('version')}" if episodes else "none"


def _trl_defaults(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return each run's defaults for the GRPOConfig fields that it omits: those that its host's trainer has reported,
    otherwise those of the TRL version that the control plane assumes."""
    hosts = [run.latest().host_id or run.host_id or 0 for run in runs]
    schemas = dict(Host.objects.filter(pk__in=hosts).values_list("pk", "trainer_schema__defaults"))
    defaults = [{**TRL_DEFAULTS, **(schemas.get(host) or {})} for host in hosts]
    return [
        {
            f"grpo.{name}": value
            for name, value in of_run.items()
            if value not in EMPTY_VALUES and name not in PROFILE_FIELDS
        }
        for of_run in defaults
    ]


def part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = spec.get(name)
    return value if isinstance(value, Mapping) else {}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a JSON document as (path, value). List members are addressed by name if all have one."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        for item in value:
            yield from _flat({k: v for k, v in item.items() if k != "name"}, f"{path}.{item['name']}")
    elif value not in EMPTY_VALUES:
        yield path, value


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def run_cost(run: Run, now: datetime) -> RunCost:
    """Return a run's time, GPU-hours and cost so far. GPU-hours are counted from the start of the lease."""
    hours, had_gpus = 0.0, False
    costs: list[Money] = []
    for attempt in run.attempts.all():
        until = attempt.ended_at or now
        count = len(attempt.gpus)
        if count and attempt.dispatched_at:
            had_gpus = True
            gpu_hours = count * max(0.0, (until - attempt.dispatched_at).total_seconds()) / 3600
            hours += gpu_hours
            if price := gpu_hour(attempt.host):
                costs.append(price * gpu_hours)
    return RunCost(run.ran_s(now), hours if had_gpus else None, total(costs))


def is_live(run: Run) -> bool:
    return run.latest().status in ACTIVE


def metrics(runs: Sequence[Run]) -> list[ComparedMetric]:
    """Return all metrics of the runs in the order of the run page, followed by those that no chart shows."""
    reported_names = {name for run in runs for name in run.last_metrics}
    planned_metrics: dict[str, ComparedMetric] = {}
    for run in runs:
        with suppress(ContractError):
            planned_metrics |= {
                metric.name: metric for metric in of_charts(run_charts.plan(spec_of(run), names=run.last_metrics))
            }
    unplanned_metrics = [ComparedMetric(name, name) for name in sorted(reported_names - set(planned_metrics))]
    return [metric for name, metric in planned_metrics.items() if name in reported_names] + unplanned_metrics


def of_charts(groups: Iterable[ChartGroup]) -> Iterator[ComparedMetric]:
    """Yield the metrics that charts show, each followed by its evaluation metric."""
    for chart in (chart for group in groups for chart in group.charts):
        for line in chart.lines:
            title = chart.title if len(chart.lines) == 1 else f"{chart.title}, {line.label}"
            yield ComparedMetric(line.metric, title, chart.format)
            if line.evaluation:
                yield ComparedMetric(line.evaluation, f"{title}, evaluation", chart.format)


def shown_metrics(request: HttpRequest, offered: Sequence[ComparedMetric]) -> list[str]:
    """Return the known metrics that the URL requests, or the usual ones if there are none."""
    names = {metric.name for metric in offered}
    requested_names = [name for name in split_list(request.GET.get("m", "")) if name in names]
    usual_metrics = (
        [name for name in first if name in names] for first in (DEFAULT_METRICS, DEFAULT_EVALUATION_METRICS)
    )
    return requested_names[:MAX_METRICS] or next(filter(None, usual_metrics), sorted(names)[:1])
