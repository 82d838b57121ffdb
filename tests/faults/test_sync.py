"""What the network does between a supervisor and the control plane: the run trains on, and all is stored once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.fakes.fault_proxy import FAILING, FAULTS, FaultProxy
from tests.faults import invariants
from tests.faults.harness import ARun, Product, on_gpus
from tests.faults.situations import changed, wait
from workers.contract.wire.names import EventKind, FileName
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder

pytestmark = pytest.mark.processes

MANY = 20_000
"""More than the supervisor sends in one batch."""


@pytest.fixture(scope="module")
def proxy(shared: Product) -> Iterator[FaultProxy]:
    """Between the host and the control plane for the whole module."""
    quick = {"GRPO_BACKOFF_MAX_S": "0.1", "GRPO_HTTP_TIMEOUT_S": "1", "GRPO_LOG_BATCH_S": "0.1"}
    with FaultProxy(shared.stack.url) as proxy, changed(shared, "host", GRPO_CONTROL_URL=proxy.url, **quick):
        yield proxy


def steps_on(run: ARun) -> None:
    """The trainer trains on, and the control plane hears of it."""
    written = sum(line["kind"] == EventKind.TRAIN for line in run.outbox())
    run.until_step(written + 1)


@pytest.mark.telling
def test_every_fault_on_every_road_loses_nothing(product: Product, proxy: FaultProxy) -> None:
    proxy.on("", "claim", *EARLY["claim"])
    proxy.on("", "dataset", *EARLY["dataset"])
    runs = {"claim and dataset": product.launch(on_gpus())}
    product.until(lambda: not proxy.waiting(), lambda: f"not met: {proxy.waiting()}")
    runs |= {road: product.launch(trainer="gate,samples:1") for road in ROADS}
    for road, faults in ROADS.items():
        proxy.on(runs[road].attempt_id, road, *faults)
    product.until(lambda: not proxy.waiting(), lambda: f"not met: {proxy.waiting()}")
    for run in runs.values():
        run.until_step(2)
        steps_on(run)
        run.open_gate("trainer")
    for run in runs.values():
        invariants.check(run, status="succeeded", reason="completed")


EARLY = {
    "claim": [*(name for name in FAILING if name != "late"), "twice"],
    "dataset": ["error_500", "bad_gateway", "busy_503", "cut_before", "half", "drip"],
}
ROADS = {
    "sync": tuple(FAULTS),
    "samples": tuple(name for name in FAULTS if name != "stale_answer"),
    "trainer": FAILING,
}
"""A second claim of the same supervisor is answered as the first was; a dataset is only read; a log that doesn't grow
is asked for no more once it is there."""


def test_connections_that_are_refused_for_a_while(product: Product, proxy: FaultProxy) -> None:
    run = product.launch()
    run.until_step(2)
    proxy.shut()
    before = len(run.outbox())
    product.until(lambda: len(run.outbox()) > before + 40, run.why)
    proxy.open()
    steps_on(run)
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")


def test_the_end_is_told_through_every_fault(product: Product, proxy: FaultProxy) -> None:
    """The last lines of one run, and the reaper's report of another one."""
    ends, reaped = product.launch(on_gpus()), product.launch(on_gpus())
    for run in (ends, reaped):
        run.until_step(2)
    proxy.on(reaped.attempt_id, "reaped", "cut_after_commit", "error_500", "garbage_after_commit")
    reaped.kill("supervisor")
    proxy.on(ends.attempt_id, "sync", *FAILING)
    ends.open_gate("trainer")
    product.until(lambda: (ends.attempt_id, "sync") not in proxy.waiting(), ends.why)
    invariants.check(ends, status="succeeded", reason="completed")
    invariants.check(reaped, status="failed", reason="supervisor_lost")


def test_many_thousand_lines_wait_for_a_web_that_is_away(product: Product) -> None:
    run = product.launch(on_gpus(), supervisor="gate", trainer=f"at_once:{MANY},steps:{MANY}")
    run.until(lambda row: row["phase"] == "preparing" and (run.folder / FileName.DATASET).exists())
    product.kill("web")
    run.open_gate("supervisor")
    wait(AttemptFolder(run.folder).has_ended_line, run.why)
    assert not product.stack.installation.web_responds()
    row = invariants.check(run, status="succeeded", reason="completed")
    assert row["step"] == MANY


def test_an_outbox_that_ends_in_mid_line_gets_the_line_from_the_trainers_file(product: Product) -> None:
    """The supervisor dies while it writes a line; what it had not sent is in nobody's hands but the trainer's."""
    run = product.launch(on_gpus())
    run.until_step(5)
    web = procfs.identity(product.fleet.pids()["web"])
    assert web is not None
    procfs.send(web, signal.SIGSTOP)
    try:
        stored = run.product.stack.django(LAST_SEQ, run=run.run)
        wait(lambda: trained_after(run, stored + 20), run.why)
        procfs.send(run.processes()["supervisor"].identity, signal.SIGKILL)
        wait(lambda: "supervisor" not in run.processes(), run.why)
        cut_in_mid_line(run, stored + 20)
    finally:
        procfs.send(web, signal.SIGCONT)
    invariants.check(run, status="failed", reason="supervisor_lost")


LAST_SEQ = "from runs.engine.models import Attempt\nresult = Attempt.objects.get(run_id=run).last_seq"


def trained_after(run: ARun, seq: int) -> list[int]:
    return [line["seq"] for line in run.outbox() if line["kind"] == EventKind.TRAIN and line["seq"] > seq]


def cut_in_mid_line(run: ARun, after: int) -> None:
    """The last whole line is the one before a line of the trainer's, of which half is there."""
    seq = trained_after(run, after)[-1]
    path = run.folder / "outbox.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    first = run.outbox()[0]["seq"]
    keep = sum(map(len, lines[: seq - first])) + len(lines[seq - first]) // 2
    os.truncate(path, keep)
