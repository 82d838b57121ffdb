"""The results of a trial's candidates, read from their runs."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from controlplane.catalogue.hardware.inventory import number
from runs.engine import queries, sentences
from runs.engine.hosts.view import HostView, host_views
from runs.engine.models import Attempt, ProfileTrial, Run
from runs.engine.records import MetricRow
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE, RunStatus, sentence
from runs.insight.metrics import peaks
from runs.insight.metrics.peaks import GpuPeak
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EndReason, EventKind

MAX_SYSTEM_ROWS = 2000
"""Maximum number of GPU samples to read for an active candidate, which cover more than an hour. Once it has ended, its
receipt has the peak."""


@dataclass(frozen=True)
class TrialTimes:
    tokens_per_s: float | None = None
    step_s: float | None = None
    first_step_s: float | None = None
    """Seconds from the launch to the end of the first step."""


CHIPS = {
    "yes": ("good", "fits"),
    "no": ("bad", "does not fit"),
    "failed": ("warn", "failed"),
    "stopped": ("stopped", "stopped"),
}


@dataclass(frozen=True)
class CandidateResult:
    name: str
    profile_id: int | None
    status: str
    """Status of the run, or `refused`."""
    fits: str
    """`yes`, `no`, `failed` or `stopped`; "" while undecided."""
    why: str
    run: Run | None = None
    peaks: tuple[GpuPeak, ...] = ()
    measured: TrialTimes = TrialTimes()
    receipt: dict[str, Any] | None = None
    best: bool = False
    use: str = ""
    """Query string that opens the New run page with this profile."""

    @property
    def chip(self) -> tuple[str, str]:
        """Tone and label of the candidate's status chip; with an empty label, the chip shows the run's status."""
        if self.status == "refused" and self.fits not in ("yes", "no"):
            return "warn", "not tried"
        return CHIPS.get(self.fits, (self.status, ""))


@dataclass(frozen=True)
class TrialVerdict:
    tone: str
    icon: str
    text: str


@dataclass(frozen=True)
class TrialProgress:
    results: list[CandidateResult]
    live: bool

    @property
    def ended(self) -> int:
        return sum(1 for result in self.results if result.status not in ACTIVE)

    @property
    def fitting(self) -> int:
        return sum(1 for result in self.results if result.fits == "yes")

    @property
    def best(self) -> CandidateResult | None:
        return next((result for result in self.results if result.best), None)

    @property
    def verdict(self) -> TrialVerdict:
        tried, fitting = len(self.results), self.fitting
        if self.live:
            return TrialVerdict("", "gauge", f"{self.ended} of {tried} tried")
        if fitting:
            return TrialVerdict("good", "circle-check", f"{fitting} of {tried} fit{'s' if fitting == 1 else ''}")
        return TrialVerdict("warn", "triangle-alert", f"None of {tried} is known to fit")

    @property
    def has_gpus(self) -> bool:
        return any(result.peaks for result in self.results)


def progress(trial: ProfileTrial) -> TrialProgress:
    """Read the trial's progress, with a number of queries that doesn't depend on the number of candidates."""
    runs = list(queries.with_attempts(trial.runs.select_related("host", "profile").order_by("created_at", "pk")))
    hosts = {view.row.pk: view for view in host_views([run.host for run in runs if run.host][:1])}
    rows = _metric_rows(runs)
    results = [_of_run(trial, run, rows[run.pk], hosts) for run in runs]
    results += [_refused_result(entry) for entry in trial.refused if isinstance(entry, dict)]
    is_live = any(result.status in ACTIVE for result in results)
    return TrialProgress(_with_best(results), is_live)


def _of_run(trial: ProfileTrial, run: Run, rows: Sequence[MetricRow], hosts: Mapping[int, HostView]) -> CandidateResult:
    attempt = run.latest()
    train = [row for row in rows if row.kind == EventKind.TRAIN]
    fits, note = _outcome(attempt)
    return CandidateResult(
        name=run.profile.name if run.profile else str(run.spec.get("hardware", {}).get("profile") or run.name),
        profile_id=run.profile_id,
        status=attempt.status,
        fits=fits,
        why=note,
        run=run,
        peaks=tuple(_peaks(run, attempt, rows, hosts)),
        measured=_measured_times(train, attempt),
        receipt=attempt.receipt,
        use=_new_run_query(trial, run),
    )


def _outcome(attempt: Attempt) -> tuple[str, str]:
    if attempt.status in ACTIVE:
        detail = attempt.phase_detail if attempt.status == RunStatus.STARTING else ""
        return "", f"{sentences.of_attempt(attempt)} {detail}".strip()
    if attempt.status == RunStatus.SUCCEEDED:
        return "yes", ""
    if attempt.reason == EndReason.OOM:
        return "no", f"Out of memory. {attempt.detail[:300]}".strip()
    if attempt.status == RunStatus.STOPPED:
        return "stopped", sentence(attempt.reason)
    return "failed", f"{sentence(attempt.reason)} {attempt.detail[:300]}".strip()


def _peaks(run: Run, attempt: Attempt, rows: Sequence[MetricRow], hosts: Mapping[int, HostView]) -> list[GpuPeak]:
    if not attempt.placement:
        return []
    placement = from_dict(Placement, attempt.placement)
    view = hosts.get(attempt.host_id or 0)
    return peaks.of_run(
        spec_of(run).hardware,
        placement,
        measured=peaks.with_receipt(_maxima_by_number(rows, "gpu/", "/memory_mib"), attempt.receipt),
        reserved=_maxima_by_number(rows, "memory/rank", "/reserved_mib"),
        sizes={gpu.index: float(gpu.memory_mib) for gpu in view.gpus} if view else {},
    )


def _maxima_by_number(rows: Iterable[MetricRow], prefix: str, suffix: str) -> dict[int, float]:
    """Find the largest value of each metric `<prefix><number><suffix>`, by number."""
    maxima: dict[int, float] = {}
    for row in rows:
        for name, value in row.values.items():
            middle = name.removeprefix(prefix).removesuffix(suffix)
            if f"{prefix}{middle}{suffix}" == name and middle.isdigit() and (size := number(value)) is not None:
                maxima[int(middle)] = max(size, maxima.get(int(middle), 0.0))
    return maxima


def _measured_times(train: Sequence[MetricRow], attempt: Attempt) -> TrialTimes:
    """Derive a candidate's times from its steps. Tokens per second are those of the second step, or of both steps if it
    reuses the first one's completions."""
    steps = [row for row in train if row.step and number(row.values.get("step_time")) is not None]
    if not steps:
        return TrialTimes()
    first, second = steps[0], steps[-1]
    launched_at = attempt.dispatched_at.timestamp() if attempt.dispatched_at else None
    waited_s = first.t - launched_at if launched_at is not None else None
    first_step = waited_s if waited_s is not None and waited_s >= 0 else None
    if first is second:
        return TrialTimes(first_step_s=first_step)
    (first_tokens, first_s), (tokens, seconds) = (
        (number(row.values.get("num_tokens")) or 0.0, number(row.values["step_time"]) or 0.0) for row in (first, second)
    )
    duration = seconds
    if tokens > first_tokens:
        tokens -= first_tokens
    else:
        duration += first_s
    return TrialTimes(tokens / duration if tokens > 0 and duration > 0 else None, seconds, first_step)


def _metric_rows(runs: Sequence[Run]) -> dict[str, list[MetricRow]]:
    """Read all training rows, none of which is deleted in so short a run, and the samples of runs without a receipt."""
    by_run: dict[str, list[MetricRow]] = {run.pk: [] for run in runs}
    open_runs = [run for run in runs if run.latest().receipt is None]
    rows = MetricRow.objects.filter(superseded=False).order_by("seq")
    for row in rows.filter(run__in=runs, kind=EventKind.TRAIN):
        by_run[row.run_id].append(row)
    system = rows.filter(run__in=open_runs, kind=EventKind.SYSTEM).order_by("-seq")
    for row in system[: MAX_SYSTEM_ROWS * max(1, len(open_runs))]:
        by_run[row.run_id].append(row)
    return by_run


def _refused_result(entry: dict[str, Any]) -> CandidateResult:
    profile_id = entry.get("profile")
    return CandidateResult(
        name=str(entry.get("name") or ""),
        profile_id=profile_id if isinstance(profile_id, int) else None,
        status="refused",
        fits="no" if entry.get("fits") is False else "failed",
        why=str(entry.get("why") or ""),
    )


def _new_run_query(trial: ProfileTrial, run: Run) -> str:
    choices = {
        "model": trial.model,
        "dataset_version": run.dataset_version_id,
        "reward_version": run.reward_version_id,
        "profile": run.profile_id,
        "host": run.host_id,
        "environment": run.environment_version_id,
    }
    return urlencode({name: value for name, value in choices.items() if value})


def _with_best(results: list[CandidateResult]) -> list[CandidateResult]:
    fitting = [result for result in results if result.fits == "yes" and result.measured.tokens_per_s]
    best_result = max(fitting, key=lambda result: result.measured.tokens_per_s or 0.0, default=None)
    return [dataclasses.replace(result, best=result is best_result) for result in results]
