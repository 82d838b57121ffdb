"""The expected duration of a run, from the most similar past runs on its hosts or otherwise from the rule of thumb.

The Preflight panel asks after every change of the form, so the number of queries and of the rows they read is bounded.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.catalogue.hardware.inventory import number
from controlplane.catalogue.hardware.models import ModelInspection
from runs.engine.hosts.view import HostView
from runs.engine.models import Attempt, Run
from runs.engine.records import MetricRow
from runs.launch.preflight import estimating
from runs.launch.preflight.draft import Draft, HostFacts
from runs.launch.preflight.duration import Duration, PastRun, PastStep, by_past, by_rule, nearest, pace, work_of
from runs.launch.preflight.hosts import machine_to_ask
from workers.contract.run.hardware import HardwareSpec
from workers.contract.wire.documents import ContractError, from_dict
from workers.contract.wire.names import EventKind

MAX_NEWEST_RUNS = 200
"""Maximum number of newest runs to consider, of any model."""
MAX_COMPARED = 30
"""Maximum number of attempts to compare, of runs of the model on the same number of training GPUs."""
MAX_READ = 3
"""Maximum number of runs whose steps are read while looking for one with enough of them."""
MAX_STEPS_READ = 60
MAX_INSPECTIONS = 100


def expected_duration(draft: Draft, hosts: Sequence[HostView]) -> Duration | None:
    """Estimate the duration on the machine that the launch requests, or on one of the hosts."""
    host_estimate = estimating.best_estimate(draft)
    return duration(draft, hosts, machine_to_ask(draft) or (host_estimate.host if host_estimate else None))


def duration(draft: Draft, hosts: Sequence[HostView], largest: HostFacts | None) -> Duration | None:
    """Estimate the duration. `largest` is the host that memory is estimated for, or the requested machine."""
    try:
        return _duration(draft, hosts, largest)
    except (ArithmeticError, ValueError):  # from settings that make no sense, which other checks report
        return None


def _duration(draft: Draft, hosts: Sequence[HostView], largest: HostFacts | None) -> Duration | None:
    work = work_of(draft)
    if work is None or draft.hardware is None or not draft.model:
        return None
    if largest is not None and largest.to_ask:
        return by_rule(draft, largest)
    for run in nearest(draft, _past_runs(draft, draft.hardware, hosts))[:MAX_READ]:
        measured_pace = pace(steps_of(run.id, run.attempt), work.steps_per_generation)
        if measured_pace and (estimate := by_past(draft, run, measured_pace)):
            return estimate
    return by_rule(draft, largest) if largest else None


def _past_runs(draft: Draft, hardware: HardwareSpec, hosts: Sequence[HostView]) -> list[PastRun]:
    newest_ids = Run.objects.order_by("-created_at").values("pk")[:MAX_NEWEST_RUNS]
    attempts = Attempt.objects.filter(
        run__in=newest_ids,
        host__in=[view.row.pk for view in hosts],
        started_at__isnull=False,
        run__step__gte=2,
        run__spec__model__path__in=_models(draft, hosts),
        run__spec__hardware__rollout=hardware.rollout.value,
        run__spec__hardware__trainer_gpus=hardware.trainer_gpus,
    )
    spec_columns = (f"run__spec__{name}" for name in ("hardware", "grpo", "lora", "ahead"))
    columns = ("pk", "run_id", "run__name", "host__name", *spec_columns)
    rows = attempts.order_by("-run__created_at", "-number").values_list(*columns)[:MAX_COMPARED]
    by_run = {row[1]: row for row in reversed(rows)}
    return list(_readable(reversed(by_run.values())))


def _models(draft: Draft, hosts: Sequence[HostView]) -> list[str]:
    """List the model, followed by others with exactly as many parameters."""
    parameters = draft.model_size("parameters")
    if not parameters:
        return [draft.model]
    inspections = ModelInspection.objects.filter(host__in=[view.row.pk for view in hosts], answered_at__isnull=False)
    sizes = inspections.order_by("-asked_at").values_list("model", "answer__parameters")[:MAX_INSPECTIONS]
    return list(dict.fromkeys([draft.model, *(model for model, size in sizes if size == parameters)]))


def _readable(rows: Iterable[tuple[Any, ...]]) -> Iterable[PastRun]:
    """Yield the runs whose hardware settings this version can read."""
    for attempt, run, name, host, hardware, grpo, lora, ahead in rows:
        try:
            spec = from_dict(HardwareSpec, hardware)
        except ContractError:
            continue
        settings = grpo if isinstance(grpo, dict) else {}
        yield PastRun(run, name, attempt, host, spec, settings, bool(lora), bool(ahead))


def steps_of(run_id: str, attempt_id: str) -> list[PastStep]:
    """Read an attempt's last steps in order, except those deleted after folding. TRL logs tokens only at steps that
    generate; each other step gets those of the step before."""
    rows = MetricRow.objects.filter(run=run_id, attempt=attempt_id, kind=EventKind.TRAIN, superseded=False)
    timed_rows = rows.filter(values__step_time__isnull=False).order_by("-seq")
    columns = timed_rows.values_list("step", "values__step_time", "values__num_tokens")[:MAX_STEPS_READ]
    steps: list[PastStep] = []
    for step, seconds_, tokens_ in reversed(columns):
        seconds, tokens = number(seconds_), number(tokens_)
        if tokens is None and steps:
            tokens = steps[-1].tokens
        if step is not None and seconds is not None and tokens is not None:
            steps.append(PastStep(step, seconds, tokens))
    return steps
