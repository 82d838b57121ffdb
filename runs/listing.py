"""The list of runs as its page shows it: rows, their sparklines and the line that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest

from controlplane.hardware.models import Host
from runs import queries, queueing
from runs.models import Attempt, Lease, MetricChunk, MetricRow, Run
from runs.series import Points, thin
from runs.states import ACTIVE, FINAL, RunStatus

TRIAL = "trial"
KINDS: dict[str, tuple[str, Callable[[QuerySet[Run]], QuerySet[Run]]]] = {
    "": ("Without trials", lambda runs: runs.exclude(kind=TRIAL)),
    TRIAL: ("Trials of profiles", lambda runs: runs.filter(kind=TRIAL)),
    "all": ("Every kind", lambda runs: runs),
}
"""What the list's filter says -> its words, and the runs that it leaves."""
SHOWN = 100
SPARK_POINTS = 40
GAIN_OVER = 10


@dataclass(frozen=True)
class Row:
    run: Run
    summary: queries.Summary
    attempt: Attempt
    where: str
    rewards: Sequence[float]
    gain: float | None
    """How far the last rewards are from the first ones."""

    @property
    def model(self) -> str:
        """A hub id as it is; of a folder on a host its name."""
        path = str(self.run.spec["model"]["path"])
        return path.rstrip("/").rsplit("/", 1)[-1] if path.startswith("/") else path

    @property
    def live(self) -> bool:
        return self.attempt.status in ACTIVE

    @property
    def share(self) -> float | None:
        return self.run.step / self.run.max_steps if self.run.max_steps else None


@dataclass(frozen=True)
class Listing:
    rows: list[Row]
    found: int
    counts: dict[str, int]
    gpus_busy: int
    gpus: int
    rising: int
    """Of the running ones: how many have a higher reward now than at their start."""
    query: str
    status: str
    kind: str = ""
    """One of KINDS."""

    @property
    def filtered(self) -> bool:
        return bool(self.query or self.status or self.kind)

    @property
    def running(self) -> int:
        return self.counts.get(RunStatus.RUNNING, 0)


def listing(request: HttpRequest) -> Listing:
    query = request.GET.get("q", "").strip()[:100]
    status = request.GET.get("status", "")
    kind = request.GET.get("kind", "") if request.GET.get("kind") in KINDS else ""
    found = _matching(KINDS[kind][1](queries.runs_for(request)), query, status)
    shown = list(found[:SHOWN])
    rewards = _rewards(shown)
    places = queueing.places() if any(run.latest().status == RunStatus.QUEUED for run in shown) else {}
    rows = [_row(run, rewards.get(run.pk, []), places) for run in shown]
    busy = Lease.objects.filter(resource__startswith="gpu:").exclude(state=Lease.RELEASED).count()
    running = [row for row in rows if row.attempt.status == RunStatus.RUNNING]
    return Listing(
        rows=rows,
        found=len(shown) if len(shown) < SHOWN else found.count(),
        counts=_counts(kind),
        gpus_busy=busy,
        gpus=sum(len(inventory.get("gpus") or []) for inventory in Host.objects.values_list("inventory", flat=True)),
        rising=sum(1 for row in running if row.gain is not None and row.gain > 0),
        query=query,
        status=status,
        kind=kind,
    )


def placement_text(attempt: Attempt) -> str:
    """`gpu-1 · GPU 0, 1`; one that waits for a host says which."""
    if attempt.host is None:
        return ""
    if attempt.placement is None:
        return attempt.host.name
    placement: dict[str, Any] = attempt.placement
    gpus = [*placement.get("gpus", []), *placement.get("server_gpus", [])]
    return f"{attempt.host.name} · GPU {', '.join(map(str, gpus))}" if gpus else f"{attempt.host.name} · CPU"


def gain(rewards: Sequence[float]) -> float | None:
    if len(rewards) < GAIN_OVER + 2:
        return None
    n = min(GAIN_OVER, len(rewards) // 2)
    return fmean(rewards[-n:]) - fmean(rewards[:n])


def _counts(kind: str) -> dict[str, int]:
    """Of the statuses on the way, in the order of the way."""
    runs = KINDS[kind][1](Run.objects.all())
    counts = Counter(Attempt.objects.filter(status__in=ACTIVE, run__in=runs).values_list("status", flat=True))
    return {status: counts[status] for status in RunStatus if counts[status]}


def _matching(runs: QuerySet[Run], query: str, status: str) -> QuerySet[Run]:
    for word in query.split():
        runs = runs.filter(Q(name__icontains=word) | Q(pk__startswith=word) | Q(owner__username__icontains=word))
    if status == "active":
        return runs.filter(attempts__status__in=ACTIVE).distinct()
    if status in FINAL:
        # A run's status is its latest attempt's; an earlier one may have ended otherwise.
        attempts = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number")
        return runs.alias(latest_status=Subquery(attempts.values("status")[:1])).filter(latest_status=status)
    if status in ACTIVE:
        return runs.filter(attempts__status=status)
    return runs


def _row(run: Run, rewards: list[float], places: Mapping[str, int]) -> Row:
    attempt = run.latest()
    return Row(
        run=run,
        summary=queries.summary(run, places=places),
        attempt=attempt,
        where=placement_text(attempt),
        rewards=_thinned(rewards, SPARK_POINTS),
        gain=gain(rewards),
    )


def _rewards(runs: list[Run]) -> dict[str, list[float]]:
    """Every reward of each run, oldest first: two queries for any number of runs."""
    found: dict[str, list[float]] = {run.pk: [] for run in runs}
    folded = {run.pk: run.folded_seq for run in runs}
    for chunk in MetricChunk.objects.filter(run__in=runs, metric="reward").order_by("run", "first_seq"):
        found[chunk.run_id].extend(Points.unpack(chunk.data, chunk.points).value.tolist())
    tail = MetricRow.objects.filter(run__in=runs, kind="train", superseded=False, values__reward__isnull=False)
    for run_id, seq, value in tail.order_by("seq").values_list("run_id", "seq", "values__reward"):
        if seq > folded[run_id] and isinstance(value, int | float):
            found[run_id].append(float(value))
    return found


def _thinned(values: list[float], count: int) -> list[float]:
    if len(values) <= count:
        return values
    kept: list[float] = thin(Points.of([(i, None, 0.0, v) for i, v in enumerate(values)]), count).value.tolist()
    return kept
