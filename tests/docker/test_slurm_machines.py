"""Machines on demand from a real Slurm of two nodes: a job is a host, trains a run, and leaves; the next goes on."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import Fleet
from tests.controlplane.catalogue.joining import shared_redis
from tests.docker.test_slurm import NODES, said
from tests.docker.test_slurm import cluster as cluster
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import LOOK, STOP, SUBMIT, a_model

pytestmark = pytest.mark.processes

SOURCE = """
from controlplane.catalogue.hardware.models import Host
from runs.engine.machines.models import MachineSource
# The host beside the control plane has room, but takes no runs.
Host.objects.filter(name="testhost").update(draining=True)
shape = {"gpus": 0, "cpus": 1, "minutes": minutes}
MachineSource.objects.create(name="slurm", kind="slurm", control_url=url, options=options, patience_minutes=0, **shape)
result = Host.objects.filter(name="testhost").count()
"""
MACHINES = """
from runs.engine.machines.models import MachineRequest
rows = MachineRequest.objects.order_by("pk")
result = [{"state": row.state, "sentence": row.sentence, "job": row.handle, "name": row.host_name} for row in rows]
"""
ATTEMPTS = """
from runs.engine.models import Attempt
rows = Attempt.objects.filter(run_id=run).order_by("number").select_related("host")
result = [{"status": row.status, "reason": row.reason, "host": row.host and row.host.name, "from": row.resume_from,
           "waits": row.waits_for, "detail": row.detail} for row in rows]
"""
HOSTS = """
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining.models import HostCredential
result = [Host.objects.filter(name=name).exists(), HostCredential.objects.get(host_name=name).revoked_at is not None]
"""
STOP = STOP.replace("Attempt.objects.get(run_id=run)", "Attempt.objects.filter(run_id=run).order_by('-number')[0]")


@pytest.fixture
def stack(cluster: Path) -> Iterator[Stack]:
    fleet = Fleet(report=print)
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        program, url = shared_redis.program(Path(folder))
        fleet.start(program)
        fleet.wait_ready(["redis"])
        made = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), {"CONTROLPLANE_HOST_REDIS_URL": url}, redis_url=url)
        yield made
        said("scancel", "--user=root", "--signal=KILL", "--full")
        made.stop()
        fleet.stop()


class OnDemand:
    """A source whose hosts train with a small program, and a run that fits nowhere else."""

    def __init__(self, stack: Stack, shared: Path, *, minutes: int = 24 * 60, **more: str) -> None:
        self.stack, self.shared = stack, shared
        trainer = json.dumps(
            json.loads(command_of(FAKE_TRAINER, FAKE_TRAINER="pause:0.05,whole")), separators=(",", ":")
        )
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CONTROLPLANE_BOOTSTRAP": "off",
            "GRPO_TRAINER_PYTHON": sys.executable,
            "GRPO_TRAINER_COMMAND": trainer,
            "GRPO_MODEL_ROOTS": str(shared / "models"),
            "GRPO_LEAVE_AFTER_S": "5",
            **more,
        }
        options = {"folder": str(shared), "environment": " ".join(f"{k}={v}" for k, v in environment.items())}
        made = {"url": stack.url, "options": options, "minutes": minutes}
        wait_until(lambda: stack.django(SOURCE, **made) if self._has_host() else False)
        submit = SUBMIT.replace('Host.objects.get(name="testhost")', "None").replace(
            'grpo={"max_steps": steps}', 'grpo={"max_steps": steps}, recovery=RecoverySpec(0, 1)'
        )
        submit = f"from workers.contract.run.spec import RecoverySpec\n{submit}"
        self.run = stack.django(submit, model=str(a_model(shared / "models/small")), steps=100_000)

    def _has_host(self) -> bool:
        return bool(
            self.stack.django("from controlplane.catalogue.hardware.models import Host\nresult = Host.objects.count()")
        )

    @property
    def machines(self) -> list[dict[str, Any]]:
        return list(self.stack.django(MACHINES))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return list(self.stack.django(ATTEMPTS, run=self.run))

    def why(self) -> str:
        logs = [path.read_text()[-3000:] for path in self.shared.glob("*/job.log")]
        return "\n".join([str(self.machines), str(self.attempts), said("squeue", "--states=all"), *logs])

    def until(self, number: int, status: str, seconds: float = 120) -> dict[str, Any]:
        wait_until(lambda: [each["status"] for each in self.attempts][number - 1 :] == [status], self.why, seconds)
        return self.attempts[number - 1]

    def node_of(self, machine: int) -> str:
        return said("squeue", "--noheader", "--format=%N", f"--jobs={self.machines[machine]['job']}").strip()

    def trains(self) -> None:
        """The first attempt has got further."""
        self.until(1, "running")
        wait_until(lambda: self.stack.django(LOOK, run=self.run)["rows"] >= 2, self.why)

    def goes_on(self, seconds: float = 120) -> None:
        """Once the first attempt has saved for the cluster."""
        second = self.until(2, "running", seconds)
        assert self.attempts[0]["reason"] == "host_preempted", self.why()
        assert "/1/checkpoints/checkpoint-" in second["from"], self.why()
        self.stack.django(STOP, run=self.run, mode="now")


def test_a_run_gets_machines_is_preempted_goes_on_and_the_machine_leaves(stack: Stack, cluster: Path) -> None:
    made = OnDemand(stack, cluster / "shared")
    first = made.until(1, "running")
    wait_until(lambda: [each["state"] for each in made.machines] == ["joined"], made.why)
    [machine] = made.machines
    assert first["host"] == machine["name"]
    wait_until(lambda: stack.django(LOOK, run=made.run)["rows"] >= 2, made.why)
    said("scancel", "--batch", "--signal=TERM", machine["job"])
    second = made.until(2, "running")
    assert made.attempts[0]["reason"] == "host_preempted", made.why()
    assert "/1/checkpoints/checkpoint-" in second["from"], made.why()
    wait_until(lambda: [each["state"] for each in made.machines] == ["left", "joined"], made.why)
    stack.django(STOP, run=made.run, mode="now")
    wait_until(lambda: made.machines[1]["state"] == "left", made.why)
    wait_until(lambda: "COMPLETED" in said("scontrol", "show", "job", made.machines[1]["job"]), made.why)
    assert stack.django(HOSTS, name=made.machines[1]["name"]) == [False, True]


def test_slurm_preempts_a_machine_for_another_job_and_the_run_goes_on_on_another_node(
    stack: Stack, cluster: Path
) -> None:
    made = OnDemand(stack, cluster / "shared")
    made.trains()
    node = made.node_of(0)
    urgent = ["--partition=urgent", f"--nodelist={node}", f"--output={cluster}/urgent.log", "--wrap=sleep 600"]
    job = said("sbatch", "--parsable", *urgent).strip()
    made.goes_on()
    assert {node, made.node_of(1)} == set(NODES)
    wait_until(lambda: said("squeue", "--noheader", "--format=%T", f"--jobs={job}").strip() == "RUNNING", made.why)
    assert made.machines[0]["state"] == "left"


def test_a_machine_whose_time_is_up_lets_its_run_save_and_the_run_goes_on_on_the_next(
    stack: Stack, cluster: Path
) -> None:
    made = OnDemand(stack, cluster / "shared", minutes=2, GRPO_STOP_NOTICE_S="20")
    made.trains()
    assert "TimeLimit=00:02:00" in said("scontrol", "show", "job", made.machines[0]["job"])
    made.goes_on(300)
    assert "JobState=COMPLETED" in said("scontrol", "show", "job", made.machines[0]["job"])  # before it was killed
