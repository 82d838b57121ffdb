"""What must hold after every fault, whatever it was; one function checks all of it for one run that has ended."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runs.engine.states import RunStatus, final_status, may_move
from tests.faults.harness import ARun
from workers.contract.wire.names import METRIC_KINDS, EndReason, EventKind
from workers.supervisor.processes import procfs
from workers.supervisor.processes.listening import port_is_free

STORED = """
from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import MetricChunk, MetricRow, RunEvent
from runs.insight.metrics.series import Points
attempt = Attempt.objects.get(run_id=run, number=number)
later = Attempt.objects.filter(run_id=run, number__gt=number).order_by("number").first()
beyond = later.first_seq if later and later.first_seq else 2**62
raw = MetricRow.objects.filter(attempt=attempt).values_list("seq", "kind", "step", "values")
chunks = {}
for chunk in MetricChunk.objects.filter(run_id=run):
    points = Points.unpack(chunk.data, chunk.points)
    chunks.setdefault(chunk.metric, []).extend(
        [int(s), float(v)] for s, v in zip(points.seq, points.value) if attempt.first_seq <= s < beyond)
folded = Run.objects.get(pk=run).folded_seq
events = RunEvent.objects.filter(attempt=attempt).order_by("id")
result = {
    "raw": [list(row) for row in raw], "chunks": chunks, "folded": folded,
    "events": [[e.seq, e.kind, e.data] for e in events if e.seq is not None],
    "moves": [e.data for e in events if e.kind == "status"],
    "leases": [[l.resource, l.state] for l in Lease.objects.filter(attempt=attempt)],
    "not_released": [r for r in Lease.objects.exclude(state="released").values_list("host", "resource")],
    "other_live": Attempt.objects.filter(run_id=run, status__in=["queued", "starting", "running", "stopping"]).count(),
}
"""


def check(run: ARun, *, status: str, reason: str, leases: str = "released", complete: bool = True) -> dict[str, Any]:
    """The end is this one and everything is in order; answers the attempt's row.

    `leases`: the state that all of them are in. `complete`: the outbox reached its last line and the store has all of
    it, which holds for every fault but the loss of the folder.
    """
    row = run.ended()
    assert (row["status"], row["reason"]) == (status, reason), run.why(row)
    assert final_status(EndReason(reason)) == RunStatus(status)
    run.product.until(lambda: not run.living(), lambda: f"processes are left: {run.processes()}")
    stored = run.product.stack.django(STORED, run=run.run, number=run.number)
    _leases(run, row, stored, leases)
    _moves(run, stored)
    if complete:
        run.product.until(lambda: run.outbox_is_stored(), lambda: run.why("the store does not have the whole outbox"))
        _lines(run, run.product.stack.django(STORED, run=run.run, number=run.number))
    _no_secret(run)
    return row


def _leases(run: ARun, row: dict[str, Any], stored: dict[str, Any], state: str) -> None:
    assert {each for _, each in stored["leases"]} <= {state}, stored["leases"]
    held = Counter(map(tuple, stored["not_released"]))
    assert all(count == 1 for count in held.values()), f"leased twice: {held}"
    assert stored["other_live"] == 0
    if state != "released":
        return
    mine = {name for name, _ in stored["leases"]} - {resource for _, resource in stored["not_released"]}
    ports = [int(name.partition(":")[2]) for name in mine if name.startswith("port:")]
    taken = [port for port in ports if not port_is_free(port)]
    assert not taken, f"ports are left: {taken}, {Path('/proc/net/tcp').read_text()}"
    used = run.product.gpus.used()
    gpus = [int(name.partition(":")[2]) for name in mine if name.startswith("gpu:")]
    assert all(used[gpu] < 1000 for gpu in gpus), used
    if row["receipt"]:
        _receipt(run, row["receipt"], stored)


def _receipt(run: ARun, receipt: dict[str, Any], stored: dict[str, Any]) -> None:
    """It is about every GPU of the lease, once anything was started on them."""
    assert receipt["free"] is True, receipt
    assert receipt["survivors"] == []
    if any(line["kind"] == EventKind.PROCESS_STARTED for line in run.outbox()):
        leased = {int(name.partition(":")[2]) for name, _ in stored["leases"] if name.startswith("gpu:")}
        assert {int(gpu["gpu"]) for gpu in receipt["gpus"]} == leased, receipt


def _moves(run: ARun, stored: dict[str, Any]) -> None:
    """The statuses follow the table, and none is left once it is final."""
    moves = [(RunStatus(move["from"]), RunStatus(move["to"])) for move in stored["moves"]]
    assert all(may_move(old, new) for old, new in moves), moves
    assert all(new == following for (_, new), (following, _) in itertools.pairwise(moves)), moves


def _lines(run: ARun, stored: dict[str, Any]) -> None:
    """Every line of the outbox is in the store exactly once, with the numbers that it had."""
    outbox = run.outbox()
    seqs = [line["seq"] for line in outbox]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
    events = Counter(seq for seq, _, _ in stored["events"])
    raw = Counter(seq for seq, _, _, _ in stored["raw"])
    assert not [seq for seq, count in (events + raw).items() if count > 1], "stored twice"
    told = {line["seq"] for line in outbox if line["kind"] not in METRIC_KINDS}
    assert told == set(events), f"events: {told ^ set(events)}"
    assert _sums(_numbers(outbox)) == _sums(_stored_numbers(stored)), "the numbers differ"
    ends = [line for line in outbox if line["kind"] == EventKind.ENDED]
    assert len(ends) <= 1
    _steps_once(run, outbox)


def _steps_once(run: ARun, outbox: list[dict[str, Any]]) -> None:
    """What the trainer wrote is in the outbox: every complete log line once."""
    path = run.folder / "metrics.jsonl"
    if not path.exists():
        return
    written: list[int] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said.get("kind") == EventKind.TRAIN:
            written.append(said["step"])
    sent = [line["step"] for line in outbox if line["kind"] == EventKind.TRAIN]
    assert sent == written, f"steps written {len(written)}, sent {len(sent)}"


def _numbers(outbox: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for line in outbox:
        if line["kind"] in METRIC_KINDS:
            for name, value in line["data"].items():
                found.setdefault(name, {})[line["seq"]] = float(value)
    return found


def _stored_numbers(stored: dict[str, Any]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for metric, points in stored["chunks"].items():
        for seq, value in points:
            assert seq not in found.setdefault(metric, {}), f"{metric} has {seq} twice"
            found[metric][seq] = value
    for seq, _, _, values in stored["raw"]:
        for name, value in values.items():
            if seq > stored["folded"]:
                assert seq not in found.setdefault(name, {}), f"{name} has {seq} folded and raw"
            found.setdefault(name, {})[seq] = float(value)
    return found


def _sums(numbers: dict[str, dict[int, float]]) -> dict[str, tuple[int, str]]:
    """Count and checksum of each metric."""
    return {
        name: (len(points), hashlib.sha256(repr(sorted(points.items())).encode()).hexdigest()[:12])
        for name, points in numbers.items()
        if points
    }


def _no_secret(run: ARun) -> None:
    """Neither the run's token nor the host's is in a file of its folder, in a log of the installation, or on a page."""
    data, secrets = run.product.stack.installation.data, _secrets(run)
    for path in [*run.folder.rglob("*"), *data.glob("*.log")]:
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), f"a token is in {path.name}"
    with run.product.stack.client("viewer") as client:
        page = client.get(f"/runs/{run.run}/")
    assert page.status_code == 200, f"the run's page answers {page.status_code}"
    assert not any(secret in page.text for secret in secrets)


def no_secret_in_processes(runs: Iterable[ARun]) -> None:
    """No token of these runs or their host is in an argument list, or in an environment that can be read."""
    secrets = {secret.encode() for run in runs for secret in _secrets(run)}
    for row in procfs.table():
        for name in ("cmdline", "environ"):
            try:
                content = Path(f"/proc/{row.pid}/{name}").read_bytes()
            except OSError:  # it has ended, or is undumpable
                continue
            assert not any(secret in content for secret in secrets), f"a token is in the {name} of {row.pid}"


def _secrets(run: ARun) -> tuple[str, str]:
    host = run.product.stack.installation.host_token_file.read_text().strip()
    return run.token(), host
