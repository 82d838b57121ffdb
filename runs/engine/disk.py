"""The disk space that a run takes: its folders on hosts, its copies in the artifact store, and its database rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, F, OuterRef, Subquery, Sum, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.templatetags.figures import size_in_words
from runs.engine import checkpoints, queries
from runs.engine.models import Run, RunDisk
from runs.engine.records import MetricChunk, MetricRow, SampleStore

POINT_BYTES, LINE_BYTES = 28, 300
"""Bytes of a folded point (seq, step, t, value), and approximate bytes of a stored line of metrics."""


@dataclass(frozen=True)
class Disk:
    """The disk space that a run takes, in bytes."""

    hosts: tuple[tuple[str, int, datetime], ...]
    """Each host's (name, bytes, time of the measurement), largest first."""
    store: int
    """Bytes of checkpoints in the artifact store."""
    texts: int
    """Bytes of stored completions."""
    points: int
    """Estimated bytes of chart points."""
    logs: int

    @property
    def on_hosts(self) -> int:
        return sum(size for _, size, _ in self.hosts)

    @property
    def database(self) -> int:
        return self.texts + self.points + self.logs

    @property
    def parts(self) -> list[str]:
        """The space that deleting the run frees in each location, such as `1.2 GB on h1`."""
        sizes = [(size, f"on {name}") for name, size, _ in self.hosts]
        sizes += [(self.store, "in the artifact store"), (self.database, "in the database")]
        return [f"{size_in_words(size)} {location}" for size, location in sizes if size]


def of_run(run: Run) -> Disk:
    rows = run.disks.select_related("host").order_by("-bytes")
    stored_sizes = [checkpoint.event.data.get("bytes") for checkpoint in checkpoints.of_run(run) if checkpoint.in_store]
    points = MetricChunk.objects.filter(run=run).aggregate(points=Sum("points"))["points"] or 0
    return Disk(
        hosts=tuple((row.host.name, row.bytes, row.measured_at) for row in rows),
        store=sum(size for size in stored_sizes if isinstance(size, int)),
        texts=SampleStore.objects.filter(run=run).values_list("size", flat=True).first() or 0,
        points=POINT_BYTES * points + LINE_BYTES * MetricRow.objects.filter(run=run).count(),
        logs=sum(sum(queries.log_sizes(attempt).values()) for attempt in run.attempts.all()),
    )


def sum_of(disks: Iterable[Disk]) -> Disk:
    disks = list(disks)
    hosts: dict[str, tuple[int, datetime]] = {}
    for name, size, measured_at in (host for disk in disks for host in disk.hosts):
        total, oldest_at = hosts.get(name, (0, measured_at))
        hosts[name] = (total + size, min(oldest_at, measured_at))
    by_size = sorted(((name, *size_and_time) for name, size_and_time in hosts.items()), key=lambda host: -host[1])
    columns = ("store", "texts", "points", "logs")
    return Disk(tuple(by_size), *(sum(getattr(disk, column) for disk in disks) for column in columns))


def sum_of_run() -> "Subquery[Any]":
    """Build a subquery of each run's total bytes on all hosts; NULL if no host has measured the run."""
    sizes = RunDisk.objects.filter(run=OuterRef("pk")).order_by().values("run")
    return Subquery(sizes.annotate(sum=Sum("bytes")).values("sum"))


@dataclass(frozen=True)
class HostDiskUse:
    """The disk space that all runs take on a host."""

    bytes: int
    runs: int
    biggest: tuple[RunDisk, ...]
    """The runs that take the most space, largest first, including deleted ones."""


def of_hosts(limit: int = 5) -> dict[int, HostDiskUse]:
    """Map host ids to disk use, for hosts that have measured it, in one query for any number of hosts."""
    on_host: dict[str, Any] = {"partition_by": "host"}
    rows = RunDisk.objects.select_related("run").annotate(
        rank=Window(RowNumber(), order_by=[F("bytes").desc(), F("pk")], **on_host),
        sum=Window(Sum("bytes"), **on_host),
        count=Window(Count("pk"), **on_host),
    )
    by_host: dict[int, list[Any]] = {}
    for row in rows.filter(rank__lte=limit).order_by("rank"):
        by_host.setdefault(row.host_id, []).append(row)
    return {host: HostDiskUse(int(uses[0].sum), uses[0].count, tuple(uses)) for host, uses in by_host.items()}


@transaction.atomic
def store_measurement(host: Host, sizes: dict[str, int], now: datetime | None = None) -> None:
    """Store a host's measurement: bytes by run id, for every run with a folder there. Hosts that share their folder of
    runs measure the same bytes, so only the newest measurement is kept."""
    now = now or timezone.now()
    run_ids = set(Run.every.filter(pk__in=queries.valid_ids(sizes)).values_list("pk", flat=True))
    rows = [RunDisk(run_id=pk, host=host, bytes=size, measured_at=now) for pk, size in sizes.items() if pk in run_ids]
    RunDisk.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["run", "host"], update_fields=["bytes", "measured_at"]
    )
    RunDisk.objects.filter(host=host).exclude(run__in=run_ids).delete()
    if folder := host.inventory.get("runs_folder"):
        sharing_hosts = Host.every.filter(inventory__runs_folder=folder).exclude(pk=host.pk)
        RunDisk.objects.filter(host__in=sharing_hosts, run__in=run_ids).delete()
