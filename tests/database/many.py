"""Inside a process with Django: 10,000 runs in the store, and the plans of the queries that code makes there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Lease, Run, new_run_id
from runs.engine.records import MetricRow, RunEvent
from runs.engine.states import RunStatus
from workers.contract.wire.names import EndReason

BIG = {"runs_run", "runs_attempt", "runs_metricrow", "runs_runevent", "runs_lease"}
ROWS, EVENTS = 40, 5
"""Of each live run, and of each run."""


def make(model: Run, *, runs: int, live: int) -> None:
    """Copies of a run, over a year: the newest are live, the others have ended."""
    now = timezone.now()
    host = Host.objects.create(name="many", announced_at=now, inventory={"boot_id": "b", "cpu_slots": live, "gpus": []})
    copied = {name: getattr(model, name) for name in ("owner", "spec", "dataset_version", "reward_version", "profile")}
    made = [Run(id=new_run_id(), name=f"run {n}", last_seq=ROWS, max_steps=1000, **copied) for n in range(runs)]
    Run.objects.bulk_create(made, batch_size=500)
    attempts = [_attempt(run, host, is_live=n < live, ago=timedelta(hours=n), now=now) for n, run in enumerate(made)]
    Attempt.objects.bulk_create(attempts, batch_size=500)
    leases = [_lease(attempt, host, slot, is_live=slot < live) for slot, attempt in enumerate(attempts)]
    Lease.objects.bulk_create(leases, batch_size=500)
    events = [
        RunEvent(run_id=a.run_id, attempt=a, seq=seq, at=now, kind="note", data={"text": ""})
        for a in attempts
        for seq in range(1, EVENTS)
    ]
    RunEvent.objects.bulk_create(events, batch_size=2000)
    rows = [
        MetricRow(run_id=a.run_id, attempt=a, seq=seq, t=float(seq), kind="train", step=seq, values={"reward": 0.5})
        for a in attempts[: 10 * live]
        for seq in range(EVENTS, ROWS + 1)
    ]
    MetricRow.objects.bulk_create(rows, batch_size=2000)
    for run, attempt in zip(made, attempts, strict=True):
        run.created_at = attempt.created_at
    Run.objects.bulk_update(made, ["created_at"], batch_size=500)


def _attempt(run: Run, host: Host, *, is_live: bool, ago: timedelta, now: Any) -> Attempt:
    return Attempt(
        id=f"{run.pk}-1",
        run=run,
        number=1,
        host=host,
        status=RunStatus.RUNNING if is_live else RunStatus.SUCCEEDED,
        reason="" if is_live else EndReason.COMPLETED,
        created_at=now - ago,
        started_at=now - ago,
        claimed_at=now - ago,
        last_seen_at=now if is_live else now - ago,
        ended_at=None if is_live else now - ago,
        first_seq=1,
        last_seq=ROWS,
        placement={"host": host.name, "gpus": [], "cpu_slots": [0]},
        boot_id="b",
    )


def _lease(attempt: Attempt, host: Host, slot: int, *, is_live: bool) -> Lease:
    state = Lease.HELD if is_live else Lease.RELEASED
    return Lease(attempt=attempt, host=host, resource=f"cpu:{slot}", state=state)


@dataclass
class Plans:
    asked: int = 0
    read_whole: list[tuple[str, str]] = field(default_factory=list)
    """Each big table that a query reads from end to end, and the query."""


@contextmanager
def plans() -> Iterator[Plans]:
    """Of every query that is made inside."""
    found = Plans()

    def explain(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        word = sql.lstrip("( ").split(" ", 1)[0].upper()
        if word in ("SELECT", "UPDATE", "DELETE"):
            read_whole = _read_whole_on_postgresql if connection.vendor == "postgresql" else _read_whole_on_sqlite
            found.read_whole += [
                (table, sql) for table in read_whole(sql, params[0] if many else params) if table in BIG
            ]
            found.asked += 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield found


def _read_whole_on_postgresql(sql: str, params: Any) -> Iterator[str]:
    with connection.create_cursor() as cursor:  # the driver's own, which nothing wraps
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        plan = cursor.fetchone()[0]
    yield from _of_plan((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])


def _of_plan(plan: dict[str, Any]) -> Iterator[str]:
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for below in plan.get("Plans", ()):
        yield from _of_plan(below)


def _read_whole_on_sqlite(sql: str, params: Any) -> Iterator[str]:
    """Plans name tables as the query does: by their aliases."""
    tables = {alias or table: table for table, alias in re.findall(r'"(runs_\w+)"(?: "?([UVW]\d+)"?)?', sql)}
    for _, _, _, step in connection.create_cursor().execute(f"EXPLAIN QUERY PLAN {sql}", params).fetchall():
        found = re.fullmatch(r"SCAN (\w+)( USING INDEX .*)?", step)
        if found and found[1] in tables and not (found[2] and "LIMIT" in sql):
            yield tables[found[1]]
