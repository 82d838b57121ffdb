"""Set reads of runs. `run_for` is the one gate through which a view obtains a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from django.conf import settings
from django.db.models import Max, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Length
from django.http import Http404, HttpRequest
from django.utils import timezone

from runs import sentences
from runs.models import Attempt, LogChunk, MetricRow, ProfileTrial, Run, RunEvent, SampleRow
from runs.scheduling import queueing
from runs.states import ON_HOST, RunStatus
from workers.contract import EventKind

__all__ = [
    "events",
    "last_checkpoint",
    "log",
    "log_blocks",
    "log_size",
    "log_sizes",
    "rows_after",
    "run_for",
    "runs_for",
]

STARTED_AT = timezone.now()
"""When this process of the control plane began to listen: silence before it is our own."""


class Summary(TypedDict):
    """A run's figures as the list, the page and the socket show them."""

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
    waits_for: str
    place: str
    """In the queue: `2nd of 5`."""
    out_of_reach_since: str | None
    stop_requested: str
    stop_requested_at: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    receipt: dict[str, Any] | None
    exit_codes: dict[str, int]
    health: HealthSummary
    state: str
    """Another one whenever the head of the run's page has to be read anew."""


class HealthSummary(TypedDict):
    verdict: str
    """well, watch, bad, or unknown: nothing could be judged yet"""
    count: int
    """Of the findings, without mere notes."""


class EventView(TypedDict):
    id: int
    seq: int | None
    at: str
    kind: str
    step: int | None
    actor: str
    text: str


@dataclass(frozen=True)
class LogPart:
    data: bytes
    offset: int
    size: int
    """Bytes stored of the whole log."""


def run_for(request: HttpRequest, run_id: str) -> Run:
    """Every signed-in person sees every run; what a role may do is the views' decorators' matter."""
    found = runs_for(request).filter(pk__in=readable([run_id])).first()
    if found is None:
        raise Http404(f"There is no run {run_id}.")
    return found


def readable(ids: Iterable[str]) -> list[str]:
    """Without what names no row, and PostgreSQL refuses to look for."""
    return [each for each in ids if "\0" not in each]


def runs_for(request: HttpRequest) -> QuerySet[Run]:
    """Newest first, each with its owner and its attempts: two queries for any number of runs."""
    return with_attempts(Run.objects.select_related("owner"))


def trial_for(request: HttpRequest, trial_id: int) -> ProfileTrial:
    """The gate to trials of hardware profiles: open to everybody, as runs are."""
    try:
        return trials_for(request).get(pk=trial_id)
    except ProfileTrial.DoesNotExist:
        raise Http404(f"There is no trial {trial_id}.") from None


def trials_for(request: HttpRequest) -> QuerySet[ProfileTrial]:
    """Newest first."""
    trials = ProfileTrial.objects.select_related("owner", "host", "dataset_version__dataset", "reward_version__config")
    return trials.defer("dataset_version__report")


def with_attempts(runs: QuerySet[Run]) -> QuerySet[Run]:
    # What a host says of itself is long, and no page of runs shows it.
    unread = [f"host__{column}" for column in ("inventory", "trainer_schema", "history", "idle_mib")]
    attempts = Attempt.objects.select_related("host", "waits_on__owner").defer(*unread).order_by("number")
    return runs.prefetch_related(Prefetch("attempts", attempts))


def summary(run: Run, now: datetime | None = None, places: Mapping[str, int] | None = None) -> Summary:
    """No query if the run came through `runs_for`; a queued one takes `queueing.places()` for that."""
    attempt = run.latest()
    step_time = _number(run.last_metrics.get("step_time"))
    left = None if run.max_steps is None else max(0, run.max_steps - run.step)
    live, queued = attempt.status in ON_HOST, attempt.status == RunStatus.QUEUED
    told: Summary = {
        "id": run.pk,
        "name": run.name,
        "kind": run.kind,
        "attempt": attempt.number,
        "host": attempt.host.name if attempt.host else "",
        "status": attempt.status,
        "reason": attempt.reason,
        "sentence": sentences.of_attempt(attempt),
        "detail": attempt.detail,
        "phase": attempt.phase if live else "",
        "phase_detail": attempt.phase_detail if live else "",
        "step": run.step,
        "max_steps": run.max_steps,
        "step_time": step_time,
        "eta_s": step_time * left if live and step_time is not None and left is not None else None,
        "reward": _number(run.last_metrics.get("reward")),
        "waits_for": str(sentences.waiting(attempt) or "") if queued else "",
        "place": _place(attempt, places) if queued else "",
        "out_of_reach_since": _iso(out_of_reach_since(attempt, now or timezone.now())),
        "stop_requested": attempt.stop_mode,
        "stop_requested_at": _iso(attempt.stop_requested_at),
        "created_at": run.created_at.isoformat(),
        "started_at": _iso(attempt.started_at),
        "ended_at": _iso(attempt.ended_at),
        "receipt": attempt.receipt,
        "exit_codes": attempt.exit_codes,
        "health": {
            "verdict": run.health.get("verdict", "unknown"),
            "count": sum(finding["level"] != "note" for finding in run.health.get("findings") or ()),
        },
        "state": "",
    }
    told["state"] = _state(told, values_of=run.health.get("told_at"))
    return told


def _state(told: Summary, *, values_of: str | None) -> str:
    """What the run's page reads its parts anew for. `values_of`: when health last had values to show."""
    parts = [
        told["status"],
        told["attempt"],
        told["phase"],
        told["reason"],
        told["stop_requested"],
        told["waits_for"],
        told["place"],
        told["out_of_reach_since"] or "",
        "receipt" if told["receipt"] else "",
        told["max_steps"],
        told["health"]["verdict"],
        told["health"]["count"],
        values_of,
    ]
    return "|".join(map(str, parts))


def _place(attempt: Attempt, places: Mapping[str, int] | None) -> str:
    if places is None:
        place, count = queueing.place_of(attempt)
    else:
        place, count = places.get(attempt.pk, 0), len(places)
    return f"{queueing.ordinal(place)} of {count}" if place else ""


def out_of_reach_since(attempt: Attempt, now: datetime) -> datetime | None:
    """Silence is no status but a reading of `last_seen_at`, counted only from the control plane's own start."""
    return attempt.last_seen_at if _silent(attempt.status, attempt.last_seen_at, now) else None


def _silent(status: str, seen: datetime | None, now: datetime) -> bool:
    if status not in ON_HOST or seen is None:
        return False
    # Started by a clock that was set back since: it has listened for long enough.
    silent = now - (max(seen, STARTED_AT) if now >= STARTED_AT else seen)
    return silent > timedelta(seconds=settings.SILENT_AFTER_S)


def rows_after(run_id: str, after: int, limit: int) -> list[tuple[int, float, int | None, str, dict[str, float]]]:
    """Raw metric rows in the socket's shape: (seq, t, step, kind, values)."""
    rows = MetricRow.objects.filter(run_id=run_id, seq__gt=after, superseded=False).order_by("seq")
    return list(rows.values_list("seq", "t", "step", "kind", "values")[:limit])


def events(run: Run, limit: int = 500) -> list[EventView]:
    """The timeline, oldest first; the newest `limit` of it."""
    newest = RunEvent.objects.filter(run=run).select_related("attempt").order_by("-id")[:limit]
    return [event_view(event) for event in reversed(newest)]


def event_view(event: RunEvent) -> EventView:
    return {
        "id": event.pk,
        "seq": event.seq,
        "at": event.at.isoformat(),
        "kind": event.kind,
        "step": event.step,
        "actor": event.actor,
        "text": sentences.of_event(event),
    }


def superseded(run: Run) -> Q:
    """Rows (of a model with `attempt` and `step`) that a later attempt made void by resuming from before them."""
    void = Q(pk__in=[])
    later = run.attempts.filter(number__gt=1, started_at__isnull=False).values_list("number", "resume_step")
    for number, step in later:
        void |= Q(attempt__number__lt=number, step__gt=step)
    return void


def last_checkpoint(run: Run) -> RunEvent | None:
    saved = RunEvent.objects.filter(run=run, kind=EventKind.CHECKPOINT).exclude(superseded(run))
    return saved.select_related("attempt__host").order_by("seq").last()


def latest_sample_step(run: Run) -> int | None:
    stored = SampleRow.objects.filter(run=run, superseded=False)
    step: int | None = stored.aggregate(step=Max("step"))["step"]
    return step


def log(attempt: Attempt, name: str, offset: int = 0, limit: int = 256 * 1024) -> LogPart:
    """Bytes of a log from `offset`; a negative offset counts from the end."""
    size = log_size(attempt, name)
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    return LogPart(data=_log_bytes(attempt, name, start, limit), offset=start, size=size)


def log_blocks(attempt: Attempt, name: str, size: int, block: int = 1024 * 1024) -> Iterator[bytes]:
    """The first `size` bytes of a log; no cursor stays open between two blocks."""
    at = 0
    while at < size and (data := _log_bytes(attempt, name, at, min(block, size - at))):
        yield data
        at += len(data)


def _log_bytes(attempt: Attempt, name: str, start: int, limit: int) -> bytes:
    chunks = LogChunk.objects.filter(attempt=attempt, name=name)
    first = chunks.filter(offset__lte=start).order_by("-offset").values_list("offset", flat=True).first() or 0
    wanted = chunks.filter(offset__gte=first, offset__lt=start + limit).order_by("offset")
    found = b"".join(bytes(data)[max(0, start - at) :] for at, data in wanted.values_list("offset", "data"))
    return found[:limit]


def log_size(attempt: Attempt, name: str) -> int:
    chunks = LogChunk.objects.filter(attempt=attempt, name=name).order_by("-offset")
    last = chunks.values_list("offset", Length("data")).first()
    return last[0] + last[1] if last else 0


def log_sizes(attempt: Attempt) -> dict[str, int]:
    """Bytes stored of each log that has any, by name. From end to end, a look at the index for each: a log may be of
    many thousand chunks, and a page that watches it asks with every frame."""
    sizes: dict[str, int] = {}
    chunks = LogChunk.objects.filter(attempt=attempt)
    ends = chunks.order_by("-name", "-offset").values_list("name", "offset", Length("data"))
    last = ends.first()
    while last is not None:
        name, offset, length = last
        sizes[name] = offset + length
        last = ends.filter(name__lt=name).first()
    return dict(reversed(sizes.items()))


def figures(newest: int = 500) -> dict[str, tuple[object, ...]]:
    """What the list shows of its runs, to see which have changed; silence is a change that nobody announces."""
    last = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number")
    shown = {name: Subquery(last.values(name)[:1]) for name in ("status", "stop_mode", "last_seen_at")}
    runs = Run.objects.annotate(**shown).order_by("-created_at")
    now = timezone.now()
    return {
        pk: (seq, status, mode, _silent(status, seen, now))
        for pk, seq, status, mode, seen in runs.values_list("pk", "last_seq", *shown)[:newest]
    }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
