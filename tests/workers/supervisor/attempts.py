"""Builders and helpers for tests that run real supervisors: specs, settings, waiting, counting what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.datasets import parquet
from tests.fakes.fake_control import TOKEN, FakeControl
from tests.waiting import wait_until
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.limits import LimitsSpec
from workers.contract.run.spec import (
    AttemptSpec,
    DataSpec,
    HangSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
)
from workers.contract.wire.documents import digest, to_dict
from workers.contract.wire.names import StopMode
from workers.host import launcher
from workers.settings import HostSettings
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder, Lock

FAKES = Path(__file__).resolve().parents[2] / "fakes"
DATASET = parquet()
RUN = "rtestrun22"

QUICK: dict[str, Any] = {
    "http_timeout_s": 1.0,
    "claim_deadline_s": 20.0,
    "dataset_deadline_s": 20.0,
    "tick_s": 0.02,
    "tree_scan_s": 0.1,
    "sample_s": 0.2,
    "heartbeat_s": 0.2,
    "batch_s": 0.1,
    "batch_watched_s": 0.05,
    "backoff_max_s": 0.3,
    "log_batch_s": 0.3,
    "log_batch_watched_s": 0.1,
    "save_deadline_s": 10.0,
    "kill_deadline_s": 20.0,
    "gpu_free_deadline_s": 5.0,
    "settle_s": 0.5,
    "drain_deadline_s": 20.0,
    "refused_deadline_s": 1.0,
}


def build_settings(runs_dir: Path, control: FakeControl, *, trainer: str = "", **changes: Any) -> HostSettings:
    command = ("/usr/bin/env", f"FAKE_TRAINER={trainer}", sys.executable, str(FAKES / "fake_trainer.py"))
    values = {"control_url": control.url, "trainer_command": command, "host_name": "testhost", **QUICK, **changes}
    return HostSettings(runs_dir=runs_dir, **values)


def build_spec(control: FakeControl, **changes: Any) -> AttemptSpec:
    run = RunSpec(
        run_id=RUN,
        name="a run",
        kind="train",
        model=ModelSpec(str(changes.pop("model", "some/model"))),
        data=DataSpec("sums", 1, control.sha256, 1, sources=changes.pop("sources", ())),
        rewards=(RewardSpec("exact", "exact_match"),),
        hardware=changes.pop("hardware", HardwareSpec("CPU", cpu_slots=1)),
        grpo={"max_steps": 5},
        hang=changes.pop("hang", HangSpec()),
        limits=changes.pop("limits", LimitsSpec()),
        episodes=changes.pop("episodes", None),
    )
    spec = AttemptSpec(f"{RUN}-1", 1, 1, run, changes.pop("placement", Placement("testhost", cpu_slots=(0,))))
    return replace(spec, **changes)


class Attempt:
    """One launched attempt as a test sees it from outside: files, lock, control plane, processes."""

    def __init__(self, control: FakeControl, settings: HostSettings, spec: AttemptSpec) -> None:
        self.control = control
        self.settings = settings
        self.use(spec)
        self.folder = AttemptFolder.of(settings.runs_dir, spec.run.run_id, spec.number)

    def use(self, spec: AttemptSpec) -> None:
        """Launch this spec, which the control plane has, too."""
        self.spec = spec
        self.control.spec_sha256 = digest(spec)

    def launch(self, **environment: str) -> launcher.Launch:
        source = {"PATH": os.environ["PATH"], **environment}
        return launcher.launch(to_dict(self.spec), TOKEN, self.settings, environment=source)

    def ask_to_stop(self, mode: StopMode) -> None:
        self.folder.request_stop(mode)

    def supervisor(self) -> procfs.Identity:
        holder = self.folder.read_json("supervisor.lock") or {}
        return procfs.Identity(holder["pid"], holder["start_time"])

    def lock_is_held(self) -> bool:
        return Lock(self.folder).is_held()

    def kill_supervisor(self) -> None:
        procfs.send(self.supervisor(), signal.SIGKILL)
        wait_until(lambda: not self.lock_is_held(), self.why)

    def wait_for_step(self, step: int) -> None:
        wait_until(lambda: step in self.control.train_steps(), self.why)

    def wait_for_end(self) -> dict[str, Any]:
        wait_until(lambda: self.control.ended is not None, self.why)
        assert self.control.ended is not None
        return self.control.ended

    def wait_until_gone(self) -> None:
        wait_until(lambda: not self.lock_is_held() and not self.processes(), self.why)

    def processes(self) -> list[int]:
        """Whoever works in the folder: every process of the attempt, the supervisor included."""
        return [
            row.pid
            for row in procfs.table()
            if row.alive and (procfs.working_directory(row.pid) or "").startswith(str(self.folder.path))
        ]

    def outbox(self) -> list[dict[str, Any]]:
        """Its whole lines: the last one may be on its way."""
        path = self.folder / "outbox.jsonl"
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def trainer_environment(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "environment.json").read_text()))

    def log(self, name: str = "supervisor") -> str:
        path = self.folder.log(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def why(self) -> str:
        return f"supervisor.log:\n{self.log()}\ntrainer.log:\n{self.log('trainer')[-2000:]}\n{self.control.phases()}"

    def kill_leftovers(self) -> None:
        """For a test that failed: it leaves nothing to the next one."""
        for pid in self.processes():
            found = procfs.identity(pid)
            if found is not None:
                procfs.send(found, signal.SIGKILL)


@contextmanager
def attempt(
    tmp_path: Path,
    *,
    trainer: str = "",
    spec: dict[str, Any] | None = None,
    hang: HangSpec | None = None,
    limits: LimitsSpec | None = None,
    **settings: Any,
) -> Iterator[Attempt]:
    """A control plane and an attempt that is ready to be launched. At the end: no process of it is left."""
    control = FakeControl(DATASET).start()
    model = tmp_path / "models" / "tiny"
    model.mkdir(parents=True, exist_ok=True)
    asked = {"hang": hang or HangSpec(), "limits": limits or LimitsSpec()}
    made = Attempt(
        control,
        build_settings(tmp_path / "runs", control, trainer=trainer, **{"model_roots": (model.parent,), **settings}),
        build_spec(control, **{"model": model, **asked, **(spec or {})}),
    )
    try:
        yield made
        made.wait_until_gone()
    finally:
        made.kill_leftovers()
        control.close()


def of_process(pid: int, what: str) -> bytes:
    """Its environ or cmdline, say."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""  # it has ended, or can't be looked into
