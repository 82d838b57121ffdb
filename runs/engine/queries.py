"""Queries for runs. Views get a run only through `run_for`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, TypedDict

from django.conf import settings
from django.db.models import Max, OuterRef, Prefetch, QuerySet, Subquery
from django.db.models.functions import Length
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils import timezone

from controlplane.platform.http.errors import Deleted
from runs.engine import sentences
from runs.engine.gain import gain, is_significant
from runs.engine.models import Attempt, ProfileTrial, Run
from runs.engine.records import LogChunk, MetricRow, SampleRow, number
from runs.engine.scheduling import gpu_queue
from runs.engine.states import ON_HOST, RunStatus

STARTED_AT = timezone.now()
"""Time when this process started; a host's silence before it is ignored."""


_head_values = itemgetter(
    *("status", "attempt", "phase", "reason", "resumes_at", "stop_requested", "waits_for", "place"),
    *("out_of_reach_since", "max_steps"),
)
"""Getter of the values in the head of a run's page, which `Summary.state` combines."""


class Summary(TypedDict):
    """A run's values, as shown in the list, on the run's page and on the websocket."""

    id: str
    name: str
    kind: str
    attempt: int
    host: str
    status: str
    reason: str
    sentence: str
    detail: str
    phase: str
    phase_detail: str
    step: int
    max_steps: int | None
    step_time: float | None
    eta_s: float | None
    reward: float | None
    gain: float | None
    gain_counts: bool
    """True if the gain is significant; see runs.engine.gain."""
    waits_for: str
    place: str
    """Position in the queue, such as `2nd of 5`."""
    out_of_reach_since: str | None
    resumes_at: str | None
    stop_requested: str
    stop_requested_at: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    receipt: dict[str, Any] | None
    exit_codes: dict[str, int]
    health: "HealthSummary"
    state: str
    """String that changes whenever the head of the run's page must be reloaded."""


class HealthSummary(TypedDict):
    verdict: str
    """`well`, `warning`, `bad`, or `unknown` if nothing could be judged yet."""
    count: int
    """Number of findings, not counting notes."""


@dataclass(frozen=True)
class LogPart:
    data: bytes
    offset: int
    size: int
    """Size of the whole stored log in bytes."""


def run_for(request: HttpRequest, run_id: str) -> Run:
    """Find the run with this id, or raise Http404 or Deleted. Every signed-in user may see every run; decorators check
    the roles."""
    if run := runs_for(request).filter(pk__in=valid_ids([run_id])).first():
        return run
    deleted_run = Run.every.filter(pk__in=valid_ids([run_id])).select_related("deleted_by").first()
    if deleted_run is None or not deleted_run.can_be_restored(timezone.now()):
        raise Http404(f"There is no run {run_id}.")
    by_user = f" by {deleted_run.deleted_by.username}" if deleted_run.deleted_by else ""
    fix = f"It can be restored until {deleted_run.purge_at:%Y-%m-%d %H:%M} UTC."
    raise Deleted(
        f"The run “{deleted_run.name}” was deleted{by_user}.", fix, reverse("restore", args=["run", deleted_run.pk])
    )


def valid_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids that a row can have; PostgreSQL raises an error for any others."""
    return [id_ for id_ in ids if "\0" not in id_]


def runs_for(request: HttpRequest) -> QuerySet[Run]:
    """List all undeleted runs, newest first, with their owners and attempts, in two queries for any number of runs."""
    return with_attempts(Run.objects.select_related("owner"))


def trial_for(request: HttpRequest, trial_id: int) -> ProfileTrial:
    """Find the trial with this id, or raise Http404. Every signed-in user may see every trial."""
    trial = trials_for(request).filter(pk=trial_id).first()
    if trial is None:
        raise Http404(f"There is no trial {trial_id}.")
    return trial


def trials_for(request: HttpRequest) -> QuerySet[ProfileTrial]:
    trials = ProfileTrial.objects.select_related("owner", "host", "dataset_version__dataset", "reward_version__config")
    return trials.defer("dataset_version__report")


def with_attempts(runs: QuerySet[Run]) -> QuerySet[Run]:
    # A host's announcement is long, and no page of runs shows it.
    unread = [f"host__{column}" for column in ("inventory", "trainer_schema", "history", "idle_mib")]
    attempts = (
        Attempt.objects.select_related("host", "machine", "waits_on__owner", "stop_requested_by")
        .defer(*unread)
        .order_by("number")
    )
    return runs.prefetch_related(Prefetch("attempts", attempts))


def summary(run: Run, now: datetime | None = None, positions: Mapping[str, int] | None = None) -> Summary:
    """Summarise a run. This makes no query if the run came from `runs_for` and, for a queued run, `positions` is given
    (see `gpu_queue.positions`)."""
    attempt = run.latest()
    step_time = number(run.last_metrics.get("step_time"))
    steps_left = None if run.max_steps is None else max(0, run.max_steps - run.step)
    is_on_host, is_queued = attempt.status in ON_HOST, attempt.status == RunStatus.QUEUED
    findings = run.health.get("findings") or ()
    result: Summary = {
        "id": run.pk,
        "name": run.name,
        "kind": run.kind,
        "attempt": attempt.number,
        "host": attempt.host.name if attempt.host else "",
        "status": attempt.status,
        "reason": attempt.reason,
        "sentence": sentences.of_attempt(attempt),
        "detail": attempt.detail,
        "phase": attempt.phase if is_on_host else "",
        "phase_detail": attempt.phase_detail if is_on_host else "",
        "step": run.step,
        "max_steps": run.max_steps,
        "step_time": step_time,
        "eta_s": step_time * steps_left if is_on_host and step_time is not None and steps_left is not None else None,
        "reward": number(run.last_metrics.get("reward")),
        "gain": gain(run.reward_ends),
        "gain_counts": is_significant(run.reward_ends)
        and not any(finding["rule"] == "reward_stuck" for finding in findings),
        "waits_for": str(sentences.waiting(attempt) or "") if is_queued else "",
        "place": _queue_position(attempt, positions) if is_queued else "",
        "out_of_reach_since": _iso(out_of_reach_since(attempt, now or timezone.now())),
        "resumes_at": _iso(attempt.resumes_at),
        "stop_requested": attempt.stop_mode,
        "stop_requested_at": _iso(attempt.stop_requested_at),
        "created_at": run.created_at.isoformat(),
        "started_at": _iso(attempt.started_at),
        "ended_at": _iso(attempt.ended_at),
        "receipt": attempt.receipt,
        "exit_codes": attempt.exit_codes,
        "health": {
            "verdict": run.health.get("verdict", "unknown"),
            "count": sum(finding["level"] != "note" for finding in findings),
        },
        "state": "",
    }
    result["state"] = _state(result, values_of=run.health.get("told_at"))
    return result


def _state(values: Summary, *, values_of: str | None) -> str:
    """Join the values whose change reloads parts of the run's page. `values_of` is the time of the last health
    values."""
    parts = [*_head_values(values), "receipt" if values["receipt"] else "", *values["health"].values(), values_of]
    return "|".join(map(str, parts))


def _queue_position(attempt: Attempt, positions: Mapping[str, int] | None) -> str:
    if positions is None:
        position, count = gpu_queue.position_of(attempt)
    else:
        position, count = positions.get(attempt.pk, 0), len(positions)
    return f"{gpu_queue.ordinal(position)} of {count}" if position else ""


def out_of_reach_since(attempt: Attempt, now: datetime) -> datetime | None:
    """Return the time when the host fell silent, or None if it isn't silent. Silence is not a status but is derived
    from `last_seen_at`, counted from the control plane's start at the earliest."""
    return attempt.last_seen_at if _is_silent(attempt.status, attempt.last_seen_at, now) else None


def _is_silent(status: str, last_seen: datetime | None, now: datetime) -> bool:
    if status not in ON_HOST or last_seen is None:
        return False
    # If the clock was set back since the start, the control plane has been listening for long enough.
    silence = now - (max(last_seen, STARTED_AT) if now >= STARTED_AT else last_seen)
    return silence > timedelta(seconds=settings.SILENT_AFTER_S)


def rows_after(run_id: str, after: int, limit: int) -> list[tuple[int, float, int | None, str, dict[str, float]]]:
    """List the stored metric rows after seq `after` in the websocket's format: (seq, t, step, kind, values)."""
    rows = MetricRow.objects.filter(run_id=run_id, seq__gt=after, superseded=False).order_by("seq")
    return list(rows.values_list("seq", "t", "step", "kind", "values")[:limit])


def latest_sample_step(run: Run) -> int | None:
    current_rows = SampleRow.objects.filter(run=run, superseded=False)
    step: int | None = current_rows.aggregate(step=Max("step"))["step"]
    return step


def log(attempt: Attempt, name: str, offset: int = 0, limit: int = 256 * 1024) -> LogPart:
    """Read bytes of a log from `offset`; a negative offset counts from the end."""
    size = log_size(attempt, name)
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    return LogPart(data=_log_bytes(attempt, name, start, limit), offset=start, size=size)


def log_blocks(attempt: Attempt, name: str, size: int, block: int = 1024 * 1024) -> Iterator[bytes]:
    """Yield the first `size` bytes of a log in blocks, without a database cursor that stays open in between."""
    offset = 0
    while offset < size and (data := _log_bytes(attempt, name, offset, min(block, size - offset))):
        yield data
        offset += len(data)


def _log_bytes(attempt: Attempt, name: str, start: int, limit: int) -> bytes:
    chunks = LogChunk.objects.filter(attempt=attempt, name=name)
    first_offset = chunks.filter(offset__lte=start).order_by("-offset").values_list("offset", flat=True).first() or 0
    overlap = chunks.filter(offset__gte=first_offset, offset__lt=start + limit).order_by("offset")
    content = b"".join(
        bytes(data)[max(0, start - chunk_offset) :] for chunk_offset, data in overlap.values_list("offset", "data")
    )
    return content[:limit]


def log_size(attempt: Attempt, name: str) -> int:
    chunks = LogChunk.objects.filter(attempt=attempt, name=name).order_by("-offset")
    last_chunk = chunks.values_list("offset", Length("data")).first()
    return last_chunk[0] + last_chunk[1] if last_chunk else 0


def log_sizes(attempt: Attempt) -> dict[str, int]:
    """Return the stored bytes of each log, by name. This takes one index lookup per log, since a log may have thousands
    of chunks and an open page asks with every frame."""
    sizes: dict[str, int] = {}
    chunks = LogChunk.objects.filter(attempt=attempt)
    ends = chunks.order_by("-name", "-offset").values_list("name", "offset", Length("data"))
    last_chunk = ends.first()
    while last_chunk is not None:
        name, offset, length = last_chunk
        sizes[name] = offset + length
        last_chunk = ends.filter(name__lt=name).first()
    return dict(reversed(sizes.items()))


def fingerprints(newest: int = 500) -> dict[str, tuple[object, ...]]:
    """Return a fingerprint of each of the newest runs, by id, to detect changes to the list, including silence, which
    no hint announces."""
    last_attempt = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number")
    latest_columns = {name: Subquery(last_attempt.values(name)[:1]) for name in ("status", "stop_mode", "last_seen_at")}
    runs = Run.objects.annotate(**latest_columns).order_by("-created_at")
    now = timezone.now()
    return {
        pk: (seq, status, mode, _is_silent(status, last_seen, now))
        for pk, seq, status, mode, last_seen in runs.values_list("pk", "last_seq", *latest_columns)[:newest]
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
