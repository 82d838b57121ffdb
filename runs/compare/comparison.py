"""Which runs are beside each other, how each looks, where their settings differ, and what each took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zlib import crc32

from django.http import HttpRequest

from controlplane.http.query_params import listed
from runs import queries
from runs.metrics import run_charts
from runs.models import Run
from runs.spec import spec_of
from runs.states import ACTIVE
from workers.contract import ContractError

MOST = 20
"""More curves in one chart are told apart by nobody."""
MOST_METRICS = 12
FIRST_METRICS = ("reward", "kl", "entropy", "completions/mean_length", "frac_reward_zero_std", "step_time")
COLOURS = 8
DASHES = ("solid", "dash", "dot")
ABSENT = "not set"
UNTOLD = frozenset({"run_id", "name", "kind", "schema", "data.rows", "data.sha256", "data.name", "data.version"})
"""Of the spec: what differs by itself, or is said by the dataset's name and version."""


@dataclass(frozen=True)
class Look:
    """How a run is drawn: colour and dash together are its own."""

    colour: str
    dash: str


@dataclass(frozen=True)
class Chosen:
    """What an address asks for, and what of it there is."""

    runs: list[Run]
    """In the order of the address."""
    missing: list[str]
    beyond: int
    """So many more were asked for than fit."""

    @property
    def ids(self) -> str:
        return ",".join(run.pk for run in self.runs)


@dataclass(frozen=True)
class SettingDifference:
    """One setting in which the runs are not alike."""

    name: str
    values: list[Value]


@dataclass(frozen=True)
class Value:
    text: str
    absent: bool
    as_first: bool


@dataclass(frozen=True)
class Took:
    """What a run cost so far, over all its attempts."""

    seconds: float | None
    gpu_hours: float | None
    """None: it never held a GPU."""


@dataclass(frozen=True)
class ComparedMetric:
    """One that can be chosen: how the run page writes it."""

    name: str
    title: str
    format: str = "number"


def chosen(request: HttpRequest, most: int = MOST) -> Chosen:
    """`runs=a,b,c`."""
    asked = (each.strip() for each in request.GET.get("runs", "").split(","))
    ids = queries.readable(dict.fromkeys(filter(None, asked)))
    found = queries.runs_for(request).select_related("owner", "reward_version__config").in_bulk(ids[: 2 * most])
    runs = [found[each] for each in ids if each in found]
    missing = [each for each in ids[: 2 * most] if each not in found]
    return Chosen(runs[:most], missing, max(0, len(ids) - len(missing) - most))


def looks(runs: Iterable[Run]) -> dict[str, Look]:
    """Each run's colour comes of its id, so it keeps it in every comparison, unless an older run beside it has the
    same; past eight runs the colours come again with another dash."""
    given: dict[str, Look] = {}
    taken: set[tuple[int, int]] = set()
    for run in sorted(runs, key=lambda run: (run.created_at, run.pk)):
        wanted = crc32(run.pk.encode())
        turns = ((dash, (wanted + step) % COLOURS) for dash in range(len(DASHES)) for step in range(COLOURS))
        dash, colour = next((turn for turn in turns if turn not in taken), (0, wanted % COLOURS))
        taken.add((dash, colour))
        given[run.pk] = Look(f"c{colour + 1}", DASHES[dash])
    return given


def differences(runs: Sequence[Run]) -> tuple[list[SettingDifference], int]:
    """The settings that are not the same in all runs, and how many are."""
    told = [dict(settings(run)) for run in runs]
    names = dict.fromkeys(name for each in told for name in each)
    unlike, same = [], 0
    for name in names:
        texts = [_text(each[name]) if name in each else ABSENT for each in told]
        if len(set(texts)) < 2:
            same += 1
            continue
        values = [Value(text, name not in each, text == texts[0]) for text, each in zip(texts, told, strict=True)]
        unlike.append(SettingDifference(name, values))
    return unlike, same


def settings(run: Run) -> Iterator[tuple[str, Any]]:
    """What a run was launched with, flat: the names that people gave first. Read as it is stored, so that a spec of
    another version compares too."""
    spec: dict[str, Any] = run.spec
    data, hardware = part(spec, "data"), part(spec, "hardware")
    yield "dataset", f"{data.get('name')} v{data.get('version')}"
    yield "reward config", str(run.reward_version) if run.reward_version else "deleted since"
    yield "profile", hardware.get("profile") or "none"
    yield from ((name, value) for name, value in _flat(spec) if name not in UNTOLD and name != "hardware.profile")


def part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Nothing where another version has something else there."""
    found = spec.get(name)
    return found if isinstance(found, Mapping) else {}


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a JSON document by their path; members of a list go by their name, if each has one."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) and "name" in each for each in value):
        for each in value:
            yield from _flat({k: v for k, v in each.items() if k != "name"}, f"{at}.{each['name']}")
    elif value not in (None, {}, []):
        yield at, value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def took(run: Run, now: datetime) -> Took:
    """Running time from the first step's preparation to the end; GPUs count from when they were leased."""
    seconds = hours = 0.0
    started = held = False
    for attempt in run.attempts.all():
        until = attempt.ended_at or now
        if attempt.started_at:
            started = True
            seconds += max(0.0, (until - attempt.started_at).total_seconds())
        count = len(attempt.gpus)
        if count and attempt.dispatched_at:
            held = True
            hours += count * max(0.0, (until - attempt.dispatched_at).total_seconds()) / 3600
    return Took(seconds if started else None, hours if held else None)


def is_live(run: Run) -> bool:
    return run.latest().status in ACTIVE


def metrics(runs: Sequence[Run]) -> list[ComparedMetric]:
    """Every metric that one of the runs has, in the order of the run page; what no chart foresaw follows."""
    have = {name for run in runs for name in run.last_metrics}
    planned = {metric.name: metric for run in runs for metric in _planned(run)}
    others = sorted(have - set(planned))
    return [planned[name] for name in planned if name in have] + [ComparedMetric(name, name) for name in others]


def _planned(run: Run) -> Iterator[ComparedMetric]:
    try:
        groups = run_charts.plan(spec_of(run))
    except ContractError:
        return
    for chart in (chart for group in groups for chart in group.charts):
        for line in chart.lines:
            title = chart.title if len(chart.lines) == 1 else f"{chart.title}, {line.label}"
            yield ComparedMetric(line.metric, title, chart.format)
            if line.evaluation:
                yield ComparedMetric(line.evaluation, f"{title}, evaluation", chart.format)


def shown_metrics(request: HttpRequest, known: Sequence[ComparedMetric]) -> list[str]:
    """Those of the address; nonsense counts as not said."""
    have = {metric.name for metric in known}
    asked = [name for name in listed(request.GET.get("m", "")) if name in have]
    return asked[:MOST_METRICS] or [name for name in FIRST_METRICS if name in have] or sorted(have)[:1]
