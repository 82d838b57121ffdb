"""Supervisors, folders and hosts that go; recorded pids that are somebody else's; proof that comes late."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults import invariants
from tests.faults.harness import HOST_FRESH, ARun, Product, on_gpus, with_server
from tests.faults.situations import booted_anew, deaf_host
from workers.supervisor.processes import procfs
from workers.supervisor.processes.procfs import Identity

pytestmark = pytest.mark.processes

HOST = """
from controlplane.catalogue.hardware.models import Host
result = Host.objects.get(name="testhost").pk
"""
NOTES = """
from runs.engine.records import RunEvent
result = list(RunEvent.objects.filter(run=run, kind=kind).values_list("data", flat=True))
"""


def told(run: ARun, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.product.stack.django(NOTES, run=run.run, kind=kind)
    return found


# --- folders ---------------------------------------------------------------------------------------------------


def test_a_folder_that_is_removed_under_a_live_run_ends_it(product: Product) -> None:
    runs = [product.launch(with_server(), trainer="gate,renamed"), product.launch()]
    for run in runs:
        run.until_step(3)
        shutil.rmtree(run.folder, ignore_errors=True)
    for run in runs:
        row = invariants.check(run, status="failed", reason="folder_lost", complete=False)
        assert row["step"] >= 3
        assert row["receipt"]["survivors"] == []


def test_a_folder_that_is_gone_with_its_supervisor_is_reaped_all_the_same(product: Product) -> None:
    """What was in use on its GPUs before it began is gone with it: they are a person's to release."""
    runs = {"quarantined": product.launch(with_server(), trainer="gate,renamed,ignore_term")}
    runs["released"] = product.launch(trainer="gate,renamed")
    for run in runs.values():
        run.until_step(3)
        run.kill("supervisor")
        shutil.rmtree(run.folder, ignore_errors=True)
    for leases, run in runs.items():
        row = invariants.check(run, status="failed", reason="supervisor_lost", complete=False, leases=leases)
        assert row["receipt"]["processes_ended"] >= 1
        assert row["receipt"]["survivors"] == []
    after = product.launch(on_gpus(6), trainer="steps:2")
    invariants.check(after, status="succeeded", reason="completed")


# --- pids ------------------------------------------------------------------------------------------------------


@contextmanager
def somebody_else() -> Iterator[Identity]:
    """A process that has nothing to do with any run, and must be there unharmed at the end."""
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(flush=True); input()"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = procfs.identity(process.pid)
        assert found is not None
        yield found
        process.communicate("\n", timeout=10)
        assert process.returncode == 0, "it was signalled"


@pytest.mark.parametrize("boot", ["this boot", "an earlier boot"])
def test_a_recorded_pid_that_is_somebody_elses_now_is_never_signalled(product: Product, boot: str) -> None:
    """As parent, as child and as supervisor: every pid that the folder's files name is somebody else's."""
    with somebody_else() as other:
        run = product.launch(on_gpus(), trainer="gate,renamed")
        run.until_step(3)
        run.kill("supervisor")
        start = other.start_time - 1 if boot == "this boot" else other.start_time
        boot_id = procfs.boot_id() if boot == "this boot" else "an-earlier-boot"
        claimed = json.loads((run.folder / "pids.json").read_text())
        claimed |= {"boot_id": boot_id, "processes": [[other.pid, start]]}
        (run.folder / "pids.json").write_text(json.dumps(claimed))
        holder = {"boot_id": boot_id, "pid": other.pid, "start_time": start}
        (run.folder / "supervisor.lock").write_text(json.dumps(holder))
        row = invariants.check(run, status="failed", reason="supervisor_lost")
        assert row["receipt"]["processes_ended"] == 2, "the trainer and its grandchild"


# --- hosts -----------------------------------------------------------------------------------------------------


def test_a_host_that_boots_anew_loses_its_runs_and_keeps_their_lines(product: Product, tmp_path: Path) -> None:
    runs = [product.launch(with_server()), product.launch(on_gpus(4))]
    for run in runs:
        run.until_step(3)
    with booted_anew(product, runs, tmp_path):
        for run in runs:
            run.until(lambda row: row["receipt"])  # what lay in the outbox comes with it
            invariants.check(run, status="failed", reason="host_lost")
        after = product.launch(on_gpus(8), trainer="steps:2")
        invariants.check(after, status="succeeded", reason="completed")


def test_a_host_that_is_away_and_comes_back_has_lost_nothing(product: Product) -> None:
    away, beside = product.launch(with_server()), product.launch()
    for run in (away, beside):
        run.until_step(2)
    with deaf_host(product, away, beside):
        seen = away.until(lambda row: row["out_of_reach"])
        assert seen["status"] == "running"
        assert set(seen["leases"].values()) == {"held"}
    for run in (away, beside):
        run.until(lambda row: not row["out_of_reach"])
        run.open_gate("trainer")
        invariants.check(run, status="succeeded", reason="completed")


def test_a_supervisor_that_only_stands_still_is_asked_after_and_left_alone(product: Product) -> None:
    run = product.launch(on_gpus())
    run.until_step(2)
    supervisor = run.processes()["supervisor"].identity
    procfs.send(supervisor, signal.SIGSTOP)
    product.until(lambda: told(run, "reaped"), run.why)
    assert [data["lock_held"] for data in told(run, "reaped")] == [True]
    assert run.look()["status"] == "running"
    procfs.send(supervisor, signal.SIGCONT)
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")


def test_what_was_given_up_is_in_quarantine_until_its_host_proves_it_free(product: Product) -> None:
    run = product.launch(on_gpus(8))
    run.until_step(2)
    waiting = product.launch(on_gpus(8), trainer="steps:2")
    host = product.stack.django(HOST)
    with deaf_host(product, run):
        product.until(lambda: not product.stack.django(HOST_FRESH), "the host is heard of")
        with product.stack.client("operator") as client:
            assert client.post(f"/hardware/hosts/{host}/give-up/").status_code == 302
        row = run.ended()
        assert (row["status"], row["reason"]) == ("failed", "host_lost")
        assert set(row["leases"].values()) == {"quarantined"}
        assert waiting.look()["status"] == "queued"
    run.until(lambda row: row["receipt"])  # the supervisor that lived on was told to end, and proves it
    invariants.check(run, status="failed", reason="host_lost")
    invariants.check(waiting, status="succeeded", reason="completed")
