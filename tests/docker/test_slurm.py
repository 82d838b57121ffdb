"""The Slurm job that is a host, on a real cluster: two nodes on this machine, and a partition that preempts jobs of the
other. A small program stands in for the host's."""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from runs.engine.machines import slurm
from tests.docker.files import DOCKER
from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port
from workers.host import shutdown
from workers.settings import HostSettings

JOB = DOCKER / "slurm" / "grpo-host.sbatch"
PROGRAMS = ("sbatch", "scancel", "scontrol", "slurmctld", "slurmd", "munged")
STAND_IN = """
import os, pathlib, signal, sys
told = lambda *_: (pathlib.Path("told").write_text(os.environ["GRPO_STOP_REASON"]), sys.exit(0))
signal.signal(signal.SIGTERM, told)
pathlib.Path("begun").write_text(" ".join(sys.argv[1:]))
while True:
    signal.pause()
"""
CONF = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
GresTypes=gpu
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmctldParameters=preempt_send_user_signal
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={first} CPUs=1 Gres=gpu:1 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={second} CPUs=1 Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=300
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""
NODES = ("n1", "n2")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to submit from."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path="/usr/bin:/usr/sbin") is None]:
        pytest.skip(f"needs slurm-wlm and munge: {', '.join(missing)} not found")
    if getpass.getuser() != "root":
        pytest.skip("a cluster needs root")
    folder = tmp_path / "slurm"
    (folder / "state").mkdir(parents=True)
    (folder / "key").write_bytes(b"k" * 64)
    (folder / "key").chmod(0o600)
    (folder / "gres.conf").write_text("NodeName=n[1-2] Name=gpu File=/dev/null\n")
    ports = {name: free_port() for name in ("controller", "first", "second")}
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, **ports))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    munged = ["munged", "-F", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge.socket"]
    munged += [f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/seed"]
    with ExitStack() as stack:
        for argv in (munged, ["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)):
            program = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            stack.callback(program.terminate)
        wait_until(
            lambda: said("sinfo", "--Node", "--noheader", "--partition=all", "--format=%T").split() == ["idle", "idle"],
            partial(logs, folder),
            30,
        )
        yield tmp_path


def logs(folder: Path) -> str:
    return "\n".join(log.read_text() for log in folder.glob("*.log"))


def said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True).stdout


@pytest.mark.processes
def test_slurm_tells_the_hosts_program_alone_and_never_shows_the_code(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cluster / "workers/host").mkdir(parents=True)
    (cluster / "workers/host/join.py").write_text(STAND_IN)
    (cluster / "code").write_text("5ec2e7")
    monkeypatch.chdir(cluster)
    job = said("sbatch", "--parsable", str(JOB), "https://control.example", str(cluster / "code")).strip()
    wait_until((cluster / "begun").exists, lambda: said("scontrol", "show", "job", job))
    shown = said("scontrol", "show", "job", job) + (cluster / "begun").read_text()
    assert "5ec2e7" not in shown
    said("scancel", "--batch", "--signal=TERM", job)
    wait_until(lambda: "COMPLETED" in said("scontrol", "show", "job", job))
    assert (cluster / "told").read_text() == "host_preempted"


def test_a_job_leaves_its_runs_the_time_to_save() -> None:
    (before,) = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)$", JOB.read_text(), re.M)
    settings = HostSettings(runs_dir=Path("/srv/grpo/runs"), control_url="")
    assert int(before) > shutdown.max_duration_s(settings, save=True)
    (notice,) = re.findall(r"GRPO_STOP_NOTICE_S:-(\d+)", JOB.read_text())
    assert int(notice) == int(before) - slurm.NOTICE_SPARE_S
