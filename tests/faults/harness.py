"""A whole product with GPUs that aren't there, runs that are held in one state by gates, and faults to throw at them.

Nothing here sleeps in place of a condition: a run is held by a file that does not exist yet (`open_gate` makes it),
and `until` keeps the installation's fleet going while it waits, so that what a fault has killed is started again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from controlplane.setup.serving.processes import Fleet
from tests.fakes.fake_gpus import Gpus
from tests.stack import Stack, command_of
from tests.waiting import LIMIT_S
from workers.supervisor.processes import procfs

FAKES = ROOT / "tests" / "fakes"
SCALED = {
    "CONTROLPLANE_TICK_S": "1",
    "CONTROLPLANE_HOST_STALE_AFTER_S": "3",
    "CONTROLPLANE_SILENT_AFTER_S": "2",
    "CONTROLPLANE_REAP_EVERY_S": "2",
    "CONTROLPLANE_LAUNCH_AGAIN_S": "10",  # a host that comes back on a busy machine has claimed by then
    "GRPO_ANNOUNCE_S": "0.5",
    "GRPO_ANNOUNCE_WATCHED_S": "0.5",
    "GRPO_HEARTBEAT_S": "0.5",
    "GRPO_BATCH_S": "0.3",
    "CONTROLPLANE_UNWATCHED_S": "0.3",
    "GRPO_BACKOFF_MAX_S": "0.5",
    "GRPO_HTTP_TIMEOUT_S": "2",
    "GRPO_SAMPLE_S": "0.5",
    "GRPO_TREE_SCAN_S": "0.2",
    "GRPO_SETTLE_S": "0.5",
    "GRPO_SAVE_DEADLINE_S": "20",
    "GRPO_GPU_FREE_DEADLINE_S": "3",  # of the reaper: of a supervisor see below
    "GRPO_LOG_BATCH_S": "0.5",
    "GRPO_CPU_SLOTS": "8",
    "GRPO_DATASET_CACHE_MIB": "0",  # each run goes the whole road
    "GRPO_TRAINER_PYTHON": "/nowhere/python",  # the trainer is a fake, and nobody asks what it is
}
"""Deadlines of a product whose faults a test wants to see through in seconds."""
PATIENT = {"GRPO_GPU_FREE_DEADLINE_S": "20"}
"""Of supervisors alone: tests hold runs in this wait. `launch(supervisor="gpu_free_deadline_s:1")` shortens it."""

PREPARE = """
from controlplane.catalogue.rewards import saving
from tests.datasets import ready_version
ready_version("sums")
saving.make("tags", [{"name": "format", "function": "think_tags"}])
"""
HOST_READY = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = bool(host and len(host.inventory.get("gpus") or []) == gpus)
"""
LAUNCH = """
import hashlib, json
from django.db import transaction
from django.utils import timezone
from controlplane.platform.accounts.models import User
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.scheduling import launching
from workers.contract.run.spec import LoraSpec, RecoverySpec
if just_heard:
    with transaction.atomic():  # its writer waits in line; a single statement may starve among busy ones
        Host.objects.filter(name="testhost").update(announced_at=timezone.now())
profile, _ = HardwareProfile.objects.get_or_create(
    name=hashlib.sha256(json.dumps(hardware).encode()).hexdigest(), defaults={"spec": hardware})
run = launching.submit(launching.LaunchRequest(name=name, host=Host.objects.get(name="testhost"),
    dataset_version=DatasetVersion.objects.get(), reward_version=RewardVersion.objects.get(), profile=profile,
    model=model, grpo={"max_steps": steps}, lora=LoraSpec() if "server" in hardware else None,
    recovery=RecoverySpec(resumes, 0)), user=User.objects.get(username=user))
result = run.pk
"""
LOOK = """
from django.utils import timezone
from runs.engine import queries
from runs.engine.models import Attempt, Lease
a = Attempt.objects.get(run_id=run, number=number)
result = {
    "status": a.status, "reason": a.reason, "detail": a.detail, "waits_for": a.waits_for,
    "phase": a.phase, "phase_detail": a.phase_detail,
    "receipt": a.receipt, "stop_mode": a.stop_mode, "claimed": a.claimed_at is not None, "last_seq": a.last_seq,
    "placement": a.placement, "launches_sent": a.launches_sent, "step": a.run.step,
    "leases": {l.resource: l.state for l in Lease.objects.filter(attempt=a)},
    "out_of_reach": str(queries.out_of_reach_since(a, timezone.now()) or "")}
"""
STOP = """
from controlplane.platform.accounts.models import User
from runs.engine.scheduling import stopping
from runs.engine.models import Attempt
from workers.contract.wire.names import StopMode
user = User.objects.get(username="operator")
result = stopping.request_stop(Attempt.objects.get(run_id=run, number=number), StopMode(mode), user)
"""

CPU = {"rollout": "transformers", "cpu_slots": 1}


def on_gpus(count: int = 1) -> dict[str, Any]:
    return {"rollout": "colocate", "trainer_gpus": count}


def with_server(**server: Any) -> dict[str, Any]:
    """The trainer on one GPU, vLLM on another one."""
    values = {"gpus": 1, "weight_sync": "lora", "ready_timeout_s": 30, **server}
    return {"rollout": "server", "trainer_gpus": 1, "server": values}


@dataclass
class Product:
    """One installation and its host."""

    stack: Stack
    gpus: Gpus
    model: Path
    runs: list[ARun] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def running(cls, gpus: int = 8, **environment: str) -> Iterator[Product]:
        """`environment` goes over the scaled deadlines: CONTROLPLANE_... of the web, GRPO_... of the host."""
        data = Path(tempfile.mkdtemp(prefix="gt-"))
        made = Gpus.make(Path(tempfile.mkdtemp(prefix="gt-")) / "gpus", gpus)
        fakes = {"FAKE_GPUS": str(made.folder), "FAKE_TRAINER_LIFETIME": "300", "FAKE_VLLM_LIFETIME": "300"}
        supervisors = {"FAKE_GPUS": str(made.folder), **PATIENT}
        supervisors |= {name: value for name, value in environment.items() if name in PATIENT}
        ports = _ports_of_our_own()
        settings = {
            **SCALED,
            "GRPO_PORT_RANGE": f"{ports.start}-{ports.stop - 1}",
            "FAKE_GPUS": str(made.folder),
            "GRPO_TRAINER_COMMAND": command_of(FAKES / "fake_trainer.py", FAKE_TRAINER="pause:0.05", **fakes),
            "GRPO_VLLM_COMMAND": command_of(FAKES / "fake_vllm.py", **fakes),
            **environment,
        }
        settings.setdefault("GRPO_SUPERVISOR_COMMAND", command_of(FAKES / "host_with_gpus.py", **supervisors))
        stack = Stack.start(data, settings, host_app="tests.fakes.host_with_gpus")
        stack.fleet.first_backoff_s, stack.fleet.steady_after_s = 0.2, 0.0
        try:
            product = cls(stack, made, _a_model(stack.installation.models_dir / "tiny"))
            stack.django(PREPARE)
            product.until(lambda: stack.django(HOST_READY, gpus=gpus), "the host has not announced its GPUs")
            yield product
        finally:
            stack.stop()
            shutil.rmtree(made.folder.parent, ignore_errors=True)

    @property
    def fleet(self) -> Fleet:
        return self.stack.fleet

    def launch(
        self,
        hardware: dict[str, Any] | None = None,
        *,
        trainer: str = "gate",
        vllm: str = "",
        supervisor: str = "",
        steps: int = 5,
        resumes: int = 0,
        user: str = "operator",
        just_heard: bool = False,
    ) -> ARun:
        """Submit a run; by default its trainer goes on until its gate `trainer` is opened. `supervisor`: a gate, and
        settings of this run's supervisor alone. `just_heard`: the launch is sent to a host that hears nothing any more,
        as in the moment after its last announcement."""
        behaviour = {"trainer": trainer, "vllm": vllm, "supervisor": supervisor}
        words = [f"run {len(self.runs)}", *(f"#{program}={what}" for program, what in behaviour.items() if what)]
        names = {"hardware": hardware or CPU, "name": " ".join(words), "model": str(self.model)}
        run = ARun(
            self, self.stack.django(LAUNCH, **names, steps=steps, resumes=resumes, user=user, just_heard=just_heard)
        )
        self.runs.append(run)
        return run

    def until(
        self,
        condition: Callable[[], object],
        problem: Callable[[], str] | str,
        limit_s: float = LIMIT_S,
        *,
        tended: bool = True,
    ) -> None:
        """Wait, and start again what has died in the meantime, as `up` does, unless nobody tends it. Asking takes a
        quarter of the time at most: the product needs the processors."""
        began = asked = time.monotonic()
        while not condition():
            if time.monotonic() > began + limit_s:
                raise AssertionError(f"{problem if isinstance(problem, str) else problem()} (within {limit_s:g} s)")
            if tended:
                self.fleet.tick()
            time.sleep(min(0.5, max(0.02, 3 * (time.monotonic() - asked))))
            asked = time.monotonic()

    def kill(self, program: str) -> None:
        """SIGKILL to a program of the installation: web, control, host, valkey. `until` starts it again."""
        pid = self.fleet.pids()[program]
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: (row := procfs.read(pid)) is None or not row.alive, f"{program} does not die", tended=False)

    def healthy(self) -> None:
        """Every program is there and serves; the back-off after a kill begins anew."""

        def serves() -> bool:
            pids = self.fleet.pids()
            return all((row := procfs.read(pid)) is not None and row.alive for pid in pids.values()) and self._answers()

        self.until(serves, "the installation did not come back")

    def end_all(self) -> None:
        """Whatever a test has left running goes, and its GPUs are nobody's."""
        for index in self.gpus.used():
            self.gpus.others(index, 0)
        for run in self.runs:
            for pid in run.living():
                found = procfs.identity(pid)
                if found is not None:
                    procfs.send(found, signal.SIGKILL)
        self.until(lambda: not any(run.living() for run in self.runs), "processes of a run do not go")
        self.stack.django(FORGET)
        self.runs.clear()

    def holders(self) -> set[int]:
        """GPUs that a live attempt has, by its lease."""
        return {int(name.partition(":")[2]) for name in self.stack.django(HELD) if name.startswith("gpu:")}

    def _answers(self) -> bool:
        return self.stack.installation.web_responds() and self.stack.django(HOST_FRESH)


FORGET = """
from django.utils import timezone
from runs.engine.scheduling import ending
from runs.engine.models import Attempt, Lease
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.wire.names import EndReason
for attempt in Attempt.objects.filter(status__in=ACTIVE):
    reason = EndReason.CANCELLED if attempt.status == RunStatus.QUEUED else EndReason.SUPERVISOR_LOST
    ending.end(attempt, reason, actor="test", proved_free=True)
Lease.objects.exclude(state=Lease.RELEASED).update(
    state=Lease.RELEASED, released_at=timezone.now(), released_by="test")
"""
HELD = """
from runs.engine.models import Lease
result = list(Lease.objects.filter(state="held").values_list("resource", flat=True))
"""
HOST_FRESH = """
from runs.engine.hosts.view import is_fresh
from controlplane.catalogue.hardware.models import Host
result = is_fresh(Host.objects.get(name="testhost"))
"""


@dataclass
class ARun:
    """One run's attempt as a test sees it: its row, its folder, its processes."""

    product: Product
    run: str
    number: int = 1

    @property
    def folder(self) -> Path:
        return self.product.stack.runs_dir / self.run / str(self.number)

    @property
    def attempt_id(self) -> str:
        return f"{self.run}-{self.number}"

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self.product.stack.django(LOOK, run=self.run, number=self.number)
        return found

    def stop(self, mode: str = "now") -> bool:
        return bool(self.product.stack.django(STOP, run=self.run, number=self.number, mode=mode))

    def open_gate(self, name: str) -> None:
        """trainer, save, vllm or supervisor: let through what waits there."""
        (self.folder / f"gate.{name}").touch()

    def until(self, condition: Callable[[dict[str, Any]], object], limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait until the attempt's row fits."""
        seen: dict[str, Any] = {}

        def fits() -> bool:
            seen.update(self.look())
            return bool(condition(seen))

        self.product.until(fits, lambda: self.why(seen), limit_s)
        return seen

    def until_status(self, *statuses: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        return self.until(lambda seen: seen["status"] in statuses, limit_s)

    def until_step(self, step: int) -> dict[str, Any]:
        return self.until(lambda seen: seen["step"] >= step)

    def ended(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        return self.until_status("succeeded", "failed", "stopped", limit_s=limit_s)

    def processes(self) -> dict[str, procfs.Process]:
        """Who works in the attempt's folder, by role: supervisor, trainer, vllm (the front), engine."""
        found: dict[str, procfs.Process] = {}
        for row in procfs.table():
            if row.alive and self._is_mine(row.pid):
                found.setdefault(_role(row.pid), row)
        return found

    def living(self) -> list[int]:
        return [row.pid for row in procfs.table() if row.alive and self._is_mine(row.pid)]

    def until_process(self, *roles: str) -> None:
        self.product.until(lambda: set(roles) <= set(self.processes()), lambda: self.why(self.processes()))

    def kill(self, role: str) -> None:
        self.until_process(role)
        assert procfs.send(self.processes()[role].identity, signal.SIGKILL)

    def outbox(self) -> list[dict[str, Any]]:
        path = self.folder / "outbox.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def outbox_is_stored(self) -> bool:
        path = self.folder / "outbox.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return not lines or self.look()["last_seq"] >= json.loads(lines[-1])["seq"]

    def token(self) -> str:
        code = "from controlplane.platform.http.tokens import attempt_token\nresult = attempt_token(attempt)"
        return str(self.product.stack.django(code, attempt=self.attempt_id))

    def why(self, seen: object = None) -> str:
        logs = {path.stem: path.read_text(errors="replace")[-1500:] for path in self.folder.glob("logs/*.log")}
        return "\n".join([f"{self.attempt_id}: {seen}", *(f"--- {name}\n{text}" for name, text in logs.items())])

    def _is_mine(self, pid: int) -> bool:
        where = (procfs.working_directory(pid) or "").removesuffix(" (deleted)")
        return where == str(self.folder) or where.startswith(f"{self.folder}/")


def _role(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        title = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"
    if title.startswith("VLLM::"):
        return "engine"
    for mark, role in (("fake_trainer", "trainer"), ("fake_vllm", "vllm"), ("host_with_gpus", "supervisor")):
        if mark in words:
            return role
    return title


def _ports_of_our_own() -> range:
    """No other product's, so that a port that isn't free after a run was left by that run. Ours as long as we live."""
    for first in range(22_000, 32_000, 100):
        mark = os.open(f"{tempfile.gettempdir()}/ports-of-a-product.{first}", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(mark)
        else:
            return range(first, first + 100)
    raise AssertionError("a hundred products run on this machine")


def _a_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"a.q_proj.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)
    return folder
