"""The launch message: twice, ten times, late, after the end, lost, or never; at most one supervisor gets its `go`."""

from __future__ import annotations

import re
import signal

import pytest
import redis

from tests.faults import invariants
from tests.faults.harness import ARun, Product, on_gpus
from tests.faults.situations import at_once, deaf_host, pool_of, wait
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes

DELIVER = """
from controlplane.catalogue.hardware import host_commands
from runs.engine.scheduling import dispatching
from runs.engine.models import Attempt
from controlplane.platform.http.tokens import attempt_token
from workers.contract.wire.names import Task
from workers.contract.wire.documents import to_dict
a = Attempt.objects.get(run_id=run, number=number)
for _ in range(times):
    host_commands.send("testhost", Task.LAUNCH_RUN, [to_dict(dispatching.attempt_spec(a)), attempt_token(a.pk)])
"""
TICKS = """
from datetime import timedelta
from django.utils import timezone
from runs.housekeeping import tick
for _ in range(4):
    tick.tick(timezone.now() + timedelta(hours=1))
"""

LONG_AGO = """
from datetime import timedelta
from django.utils import timezone
from runs.engine.models import Attempt
Attempt.objects.filter(run_id=run).update(launch_sent_at=timezone.now() - timedelta(seconds=12))
"""


def deliver(run: ARun, times: int = 1) -> None:
    run.product.stack.django(DELIVER, run=run.run, number=run.number, times=times)


def outcomes(run: ARun) -> list[str]:
    """What the launcher said of each delivery: started, running, ended, failed."""
    log = (run.product.stack.installation.data / "host.log").read_text(errors="replace")
    return re.findall(rf"launch of {run.attempt_id}: (\w+)", log)


def until_all_arrived(run: ARun, by_hand: int) -> None:
    """Those of the control plane, which sends again what is not claimed for a while, and ours."""
    run.until(lambda row: len(outcomes(run)) == row["launches_sent"] + by_hand)


def supervisors(run: ARun) -> int:
    """How many have taken the attempt on, in its whole life."""
    return (run.folder / "logs" / "supervisor.log").read_text().count(f"supervising {run.attempt_id} as pid")


def ends_well_once(run: ARun) -> None:
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")
    assert supervisors(run) == 1
    started = [line["data"]["role"] for line in run.outbox() if line["kind"] == "process_started"]
    assert started == ["trainer"]


def test_a_launch_that_is_delivered_again_starts_nothing_more(product: Product) -> None:
    """Ten at once, with the first; two while the supervisor prepares; one while it trains; one after the end."""
    with deaf_host(product):
        ten = product.launch(on_gpus(), just_heard=True)
        held = product.launch(on_gpus(), supervisor="gate", just_heard=True)
        for run in (ten, held):
            run.until(lambda row: row["launches_sent"])
        at_once(*[lambda: deliver(ten)] * 5, lambda: deliver(ten, times=5))
    held.until(lambda row: row["phase"] == "preparing")
    deliver(held, times=2)
    until_all_arrived(held, by_hand=2)
    held.open_gate("supervisor")
    for run in (ten, held):
        run.until_step(1)
        deliver(run)
    until_all_arrived(ten, by_hand=11)
    until_all_arrived(held, by_hand=3)
    for run in (ten, held):
        assert sorted(outcomes(run)) == [*["running"] * (len(outcomes(run)) - 1), "started"]
        ends_well_once(run)
        before = run.look()
        deliver(run)
        product.until(lambda run=run: outcomes(run)[-1] == "ended", lambda run=run: run.why(outcomes(run)))
        assert run.look() == before
        invariants.check(run, status="succeeded", reason="completed")


def test_a_launch_that_redis_loses_is_sent_again(product: Product) -> None:
    product.kill("host")  # a worker that is there would have the message in its socket already
    run = product.launch(just_heard=True)
    path = product.stack.installation.redis_url.removeprefix("unix://").partition("?")[0]
    with redis.Redis(unix_socket_path=path) as broker:
        wait(lambda: broker.llen("host.testhost") == 1, run.why)
        broker.flushall()
    row = run.until_step(1)
    assert row["launches_sent"] == 2
    ends_well_once(run)


def test_a_launch_to_a_host_that_hears_nothing_keeps_its_tries(product: Product) -> None:
    with deaf_host(product):
        run = product.launch(just_heard=True)
        run.until(lambda row: row["launches_sent"])
        tries = run.look()["launches_sent"]
        product.stack.django(TICKS)
        row = run.look()
        assert (row["status"], row["launches_sent"]) == ("starting", tries)
    run.until_step(1)
    ends_well_once(run)


def test_three_launches_without_a_claim_end_the_attempt_and_a_late_one_starts_nothing(product: Product) -> None:
    """The host announces itself, but the processes that execute its tasks stand still."""
    pool = pool_of(product, "host", size=2)
    for process in pool:
        procfs.send(process, signal.SIGSTOP)
    try:
        run = product.launch(on_gpus())
        for sent in (1, 2, 3):
            run.until(lambda row, sent=sent: row["launches_sent"] == sent)
            product.stack.django(LONG_AGO, run=run.run)
        row = run.ended()
        assert (row["status"], row["reason"], row["launches_sent"]) == ("failed", "launch_failed", 3)
        assert set(row["leases"].values()) == {"released"}
    finally:
        for process in pool:
            procfs.send(process, signal.SIGCONT)
    deliver(run)
    log = run.folder / "logs" / "supervisor.log"
    product.until(lambda: log.exists() and "the claim was refused" in log.read_text(), lambda: run.why(outcomes(run)))
    invariants.check(run, status="failed", reason="launch_failed")
    assert run.outbox() == []
    assert not (run.folder / "environment.json").exists()
    after = product.launch(on_gpus(8), trainer="steps:2")
    invariants.check(after, status="succeeded", reason="completed")
