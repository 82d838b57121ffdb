"""Programs named like Slurm's, for the control plane to run, and a source that uses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import exchange
from controlplane.platform.http.tokens import machine_code
from runs.engine.machines.models import MachineRequest, MachineSource
from tests.runs.builders import a_host
from workers.contract.wire.joining import VERSION

SBATCH = """
[ -e {folder}/refuses ] && {{ cat {folder}/refuses >&2; exit 1; }}
for word; do case $word in --job-name=*) name=${{word#--job-name=}};; esac; done
job=$(($(ls {folder}/jobs | wc -l) + 1))
printf '%s\\n' "$@" >{folder}/argv
env >{folder}/environment
echo "PENDING|Priority||$name" >{folder}/jobs/$job
echo $job
"""
SQUEUE = """
for word; do case $word in --jobs=*) job=${{word#--jobs=}};; --name=*) name=${{word#--name=}};; esac; done
cd {folder}/jobs
if [ -n "$name" ]; then grep -l "|$name\\$" *; exit 0; fi
cat $job 2>/dev/null || {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
"""
SCANCEL = """
echo "$@" >>{folder}/cancelled
case $1 in --*) ;; *) sed -i 's/^[A-Z]*/CANCELLED/' {folder}/jobs/$1;; esac
"""
SACCT = "echo 'Slurm accounting storage is disabled' >&2; exit 1\n"


class Engine:
    """Jobs are files: state|reason|node|name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)
        (folder / "bin").mkdir()
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("sacct", SACCT)):
            self.program(name, text.format(folder=folder))
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    @property
    def jobs(self) -> list[str]:
        return sorted(path.read_text().strip() for path in (self.folder / "jobs").iterdir())

    @property
    def cancelled(self) -> str:
        path = self.folder / "cancelled"
        return path.read_text() if path.exists() else ""

    def refuse(self, words: str) -> None:
        (self.folder / "refuses").write_text(words)

    def set(self, state: str, *, reason: str = "None", node: str = "gpu01", job: str = "1") -> None:
        path = self.folder / "jobs" / job
        path.write_text("|".join([state, reason, node, path.read_text().strip().split("|")[3]]))


def a_source(engine: Engine, name: str = "Cluster A", **columns: Any) -> MachineSource:
    options = {"folder": str(engine.folder / "shared"), **columns.pop("options", {})}
    chosen = {"kind": "slurm", "control_url": "https://control.example", "gpus": 1, "cpus": 8, "most": 4, **columns}
    return MachineSource.objects.create(name=name, options=options, **chosen)


def joins(request: MachineRequest, **inventory: Any) -> Host:
    """The machine's host, as it joins and announces itself."""
    code = machine_code(request.host_name)
    exchange.join(code, name="", hostname="node", version=VERSION)
    Host.every.filter(name=request.host_name).delete()
    host = a_host(request.host_name, gpus=1, cpu_slots=4)
    host.inventory |= {"runs_folder": "shared", "sandbox": {"backend": "bubblewrap", "tried": {}}, **inventory}
    host.save()
    return host
