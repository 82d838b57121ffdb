"""The control plane's metrics for Prometheus, read at each request from the database, the data folder and, for the
processes' own measurements, Redis. No process keeps any of them, so each web process can report for all."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from django.db.models import Count, Min, OuterRef, Subquery, Sum
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Lease, Run
from runs.engine.monitoring import measured
from runs.engine.monitoring.measured import MeasuredDuration
from runs.engine.monitoring.readiness import ticked_at
from runs.engine.states import ON_HOST, RunStatus

MIB = 2**20
_MEASURED_FAMILIES = {
    MeasuredDuration.INGEST: ("grpo_ingest_seconds", "Time to store one group of supervisors' lines"),
    MeasuredDuration.TICK: ("grpo_tick_seconds", "Duration of a tick, by which the control worker keeps house"),
}


def exposition(now: datetime) -> bytes:
    """Return all metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricFigures(now))
    return generate_latest(registry)


class _MetricFigures(Collector):
    def __init__(self, now: datetime) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield from _runs(self._now)
        stored_lines = Run.every.aggregate(lines=Sum("last_seq"))["lines"] or 0
        yield CounterMetricFamily("grpo_ingest_lines", "Lines of supervisors that are stored", value=stored_lines)
        yield from _hosts(self._now)
        yield from _leases()
        yield from _duration_metrics()
        yield _gauge("grpo_tick_timestamp_seconds", "When the last tick ended", [], [((), ticked_at() or 0.0)])


def _runs(now: datetime) -> Iterator[Metric]:
    newest_status = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number").values("status")[:1]
    counts = dict(
        Run.objects.annotate(now=Subquery(newest_status))
        .order_by()
        .values_list("now")
        .annotate(runs=Count("pk", distinct=True))
    )
    by_status = [((str(status),), float(counts.get(status, 0))) for status in RunStatus]
    yield _gauge("grpo_runs", "Runs by the status of their latest attempt", ["status"], by_status)
    queued_attempts = Attempt.objects.filter(status=RunStatus.QUEUED)
    yield _single("grpo_queue_length", "Attempts that wait for a host", queued_attempts.count())
    since = queued_attempts.aggregate(since=Min("created_at"))["since"]
    yield _single("grpo_queue_longest_wait_seconds", "Time that the oldest queued attempt has waited", _age(since, now))
    live_attempts = Attempt.objects.filter(status__in=ON_HOST, claimed_at__isnull=False)
    heard_at = live_attempts.aggregate(heard=Min("last_seen_at"))["heard"]
    yield _single(
        "grpo_sync_lag_seconds", "Time since the live supervisor silent for longest was heard", _age(heard_at, now)
    )


def _hosts(now: datetime) -> Iterator[Metric]:
    """Yield the hosts' metrics. GPU readings come only from fresh hosts, since an old one would look like a current
    one."""
    hosts = list(Host.objects.only("name", "inventory", "announced_at"))
    fresh_hosts = [host for host in hosts if host.is_fresh(now)]
    yield _gauge(
        "grpo_host_fresh",
        "Whether the host's announcement is recent, so that launches can arrive",
        ["host"],
        [((host.name,), float(host in fresh_hosts)) for host in hosts],
    )
    gpus = [((host.name, str(gpu["index"])), gpu) for host in fresh_hosts for gpu in host.inventory.get("gpus") or ()]
    for name, help_text, key in (
        ("grpo_gpu_memory_bytes", "Memory of the GPU", "memory_mib"),
        ("grpo_gpu_memory_used_bytes", "Memory of the GPU in use, as last announced", "used_mib"),
    ):
        yield _gauge(name, help_text, ["host", "gpu"], [(labels, gpu.get(key, 0) * MIB) for labels, gpu in gpus])
    yield _gauge(
        "grpo_gpu_utilisation_ratio",
        "Utilisation of the GPU from 0 to 1, as last announced",
        ["host", "gpu"],
        [(labels, gpu["util_percent"] / 100) for labels, gpu in gpus if gpu.get("util_percent") is not None],
    )


def _leases() -> Iterator[Metric]:
    open_leases = Lease.objects.exclude(state=Lease.RELEASED).values_list("host__name", "resource", "state")
    counts = Counter((host, resource.partition(":")[0], state) for host, resource, state in open_leases)
    rows = [(labels, float(count)) for labels, count in sorted(counts.items())]
    yield _gauge("grpo_leases", "Leases that aren't released", ["host", "kind", "state"], rows)
    quarantined_count = sum(
        count for (_, kind, state), count in counts.items() if kind == "gpu" and state == Lease.QUARANTINED
    )
    yield _single("grpo_gpus_quarantined", "GPUs that weren't proved free after a run", quarantined_count)


def _duration_metrics() -> Iterator[Metric]:
    histograms = measured.histograms()
    for name, (metric, help_text) in _MEASURED_FAMILIES.items():
        family = HistogramMetricFamily(metric, help_text)
        if name in histograms:
            buckets, total = histograms[name]
            family.add_metric([], buckets, total)
        yield family


def _gauge(name: str, help_text: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, figure in rows:
        family.add_metric(values, figure)
    return family


def _single(name: str, help_text: str, figure: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=figure)


def _age(since: datetime | None, now: datetime) -> float:
    """Return the seconds since a time, or 0 for None and for a time in the future (after a clock was set back)."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0
