"""The whole product on the machine at hand, for as long as the proof takes, and what its store says of runs."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.gpu.figures import Row
from tests.gpu.person import Person
from tests.stack import Stack
from workers.contract.run import gateway
from workers.settings import HostSettings
from workers.supervisor.processes import gpus

READY_S, MISSING_S = 240.0, 30.0
MARGIN_MIB = 300


@dataclass
class State:
    """What the store knows of a run's attempt now."""

    status: str
    reason: str
    detail: str
    phase: str
    waits_for: str
    dispatched: float | None
    ended: float | None
    placement: dict[str, Any]
    receipt: dict[str, Any] | None


class Site:
    def __init__(
        self,
        *,
        models: Path,
        cache: Path,
        trainer_python: str,
        baseline: dict[int, int],
        rehearsal: bool,
        often: bool = True,
    ) -> None:
        """`baseline`: what each GPU had in use before anything was started. `often`: the machine is sampled more
        often than by default, for its peaks."""
        for folder in (models, cache):
            folder.mkdir(parents=True, exist_ok=True)
        self.models = models
        self.trainer_python = trainer_python
        self.environment = _environment(models, cache, trainer_python, rehearsal)
        if often:
            self.environment |= {"GRPO_SAMPLE_S": "1", "GRPO_BATCH_S": "0.3"}
        self.baseline = baseline
        self.stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), self.environment)
        self._use_its_store()
        self.person = Person(self.stack.url)

    def open(self) -> None:
        """Signed in, with data and rewards, and a host whose trainer has said what it can."""
        self.person.sign_in()
        self.dataset = self.person.upload("sums", 512)
        self.rewards = self.person.make_reward_config("variety")
        self._wait_for_the_trainer()

    def _wait_for_the_trainer(self) -> None:
        begun = time.monotonic()
        while (state := self.host().get("trainer")) != "ready":
            waited = time.monotonic() - begun
            if waited > (MISSING_S if state == "missing" else READY_S):
                raise TimeoutError(f"the host's trainer is {state} after {waited:.0f} s\n{self.last_words()}")
            time.sleep(0.5)

    def close(self) -> None:
        self.person.close()
        self.stack.stop()

    @property
    def settings(self) -> HostSettings:
        return HostSettings.from_env(self.stack.environment)

    def card_gib(self, gpu: int) -> float:
        """The whole memory of a GPU."""
        return next(one.memory_mib / 1024 for one in gpus.read() if one.index == gpu)

    def folder(self, run: str) -> Path:
        return self.stack.runs_dir / run / "1"

    def last_words(self, lines: int = 40) -> str:
        """Of the product's own processes."""
        data = self.stack.installation.data
        return "\n".join(f"--- {log.name}\n{tail(log, lines)}" for log in sorted(data.glob("*.log")))

    # --- the store ----------------------------------------------------------------------------------------

    def _use_its_store(self) -> None:
        """This process becomes a reader of the installation's database; pages do all that changes something."""
        os.environ.update(self.stack.environment)
        import django

        django.setup()
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request, at our rate

    def host(self) -> dict[str, Any]:
        from controlplane.catalogue.hardware.models import Host

        found = Host.objects.filter(name="testhost").first()
        return dict(found.inventory) if found else {}

    def shipped(self, slug: str) -> int:
        """The row of a shipped profile."""
        from controlplane.catalogue.hardware.models import HardwareProfile
        from controlplane.catalogue.hardware.shipped import by_slug

        return int(HardwareProfile.objects.get(name=by_slug(slug).name).pk)

    def launch_values(self, profile: str) -> dict[str, Any]:
        """What choosing a profile fills into the New run form in a browser."""
        from controlplane.catalogue.hardware.models import HardwareProfile
        from controlplane.catalogue.hardware.profiles import launch_values

        return {**launch_values(HardwareProfile.objects.get(pk=profile))}

    def state(self, run: str) -> State:
        from runs.engine.models import Attempt

        row = Attempt.objects.filter(run_id=run).latest("number")
        return State(
            row.status,
            row.reason,
            row.detail,
            row.phase,
            row.waits_for,
            _seconds(row.dispatched_at),
            _seconds(row.ended_at),
            row.placement or {},
            row.receipt,
        )

    def rows(self, run: str, kind: str) -> list[Row]:
        from runs.engine.records import MetricRow

        found = MetricRow.objects.filter(run_id=run, kind=kind).order_by("seq")
        return [Row(t, step, values) for t, step, values in found.values_list("t", "step", "values")]

    def stopping_since(self, run: str) -> float | None:
        """When its supervisor began to end it."""
        from runs.engine.records import RunEvent

        rows = RunEvent.objects.filter(run_id=run, kind="phase").order_by("id")
        return next((row.at.timestamp() for row in rows if row.data.get("phase") == "stopping"), None)


def _environment(models: Path, cache: Path, trainer_python: str, rehearsal: bool) -> dict[str, str]:
    """One interpreter for all programs, with one compile cache for all set-ups."""
    paths = os.environ.get("PYTHONPATH", "")
    found = {
        "CONTROLPLANE_BOOTSTRAP": "off",
        "GRPO_TRAINER_PYTHON": trainer_python,
        "GRPO_MODEL_ROOTS": str(models),
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCH_EXTENSIONS_DIR": str(cache / "extensions"),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if paths:
        found["GRPO_TRAINER_PYTHONPATH"] = paths  # one interpreter for all: the trainer's libraries lie there, too
    if python := os.environ.get(gateway.PYTHON):
        found[gateway.PYTHON] = python
    if rehearsal:
        standin = str(_as_if_vllm_were_installed(cache))
        found["GRPO_TRAINER_PYTHONPATH"] = os.pathsep.join(part for part in (standin, paths) if part)
        fake = ROOT / "tests" / "fakes" / "fake_vllm.py"
        words = ["FAKE_VLLM_ENGINE=torch", "FAKE_VLLM_LIFETIME=600", trainer_python, str(fake)]
        found |= {"GRPO_VLLM_COMMAND": json.dumps(["/usr/bin/env", *words]), "GRPO_CPU_SLOTS": "1"}
    return found


def _as_if_vllm_were_installed(folder: Path) -> Path:
    """The stand-in is no package of the trainer's; a host that announces no vLLM would be refused such runs."""
    about = folder / "standin" / "vllm-0.22.1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.22.1\n")
    return about.parent


def read_gpus() -> dict[int, int]:
    """Memory in use on each GPU of the machine, in MiB; empty where there is none."""
    return gpus.used_mib(gpus.read())


def busy(baseline: dict[int, int], of: tuple[int, ...] | None = None) -> list[int]:
    """The GPUs that are not back at what they were before anything was started."""
    now = read_gpus()
    return [gpu for gpu in (baseline if of is None else of) if now.get(gpu, 0) > baseline.get(gpu, 0) + MARGIN_MIB]


def tail(path: Path, lines: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 400 * lines))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"({error})"
    return "\n".join(text.splitlines()[-lines:])


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
