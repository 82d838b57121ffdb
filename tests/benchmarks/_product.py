"""The whole product with a catalogue and a trainer that only writes lines, and the runs that were launched on it."""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.stack import Stack, command_of

HERE = Path(__file__).parent
PREPARE = """
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards import saving
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.datasets import ready_version
version = ready_version("bench", [{"prompt": "1+1", "answer": "2"}] * 64)
rewards = saving.make("bench", [{"name": "format", "function": "think_tags"}])
profile = HardwareProfile.objects.get(name="CPU")
start = {"model": model, "dataset_version": version.pk, "reward_version": rewards.pk, "profile": profile.pk}
result = as_sent(LaunchForm(initial=start))
"""
HOST = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = host and host.inventory.get("trainer") == "ready" and host.pk
"""
STATE = """
from runs.engine.models import Attempt
attempt = Attempt.objects.get(run_id=run)
result = {"status": attempt.status, "detail": attempt.detail}
"""
LIMIT_S = 120.0


class Product:
    """A stack in which runs are launched on the New run page of one signed-in operator."""

    def __init__(self, *, web_workers: int = 1, **environment: str) -> None:
        data = Path(tempfile.mkdtemp(prefix="gt-"))
        settings = {
            "GRPO_TRAINER_COMMAND": command_of(HERE / "_ticking_trainer.py"),
            "GRPO_TRAINER_PYTHON": str(_interpreter(data / "python")),
        }
        self.stack = Stack.start(data, settings | environment, web_workers=web_workers)
        self.web = self.stack.client("operator")
        self.runs: list[str] = []
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        model = self.stack.installation.models_dir / "bench"
        model.mkdir()
        (model / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}')
        self.page: dict[str, Any] = self.stack.django(PREPARE, model=str(model))
        until(lambda: bool(self.stack.django(HOST)), "the host is not ready")
        # Named, so that a second host that appears later changes nothing.
        self.page["host"] = self.stack.django(HOST)

    def close(self) -> None:
        self.web.close()
        self.stack.stop()

    def launch(self, *, pause_s: float, steps: int = 1_000_000, wide: bool = False) -> str:
        name = f"bench every {pause_s} s" + (", wide" if wide else "")
        page = {**self.page, "name": name, "max_steps": steps, "key": f"bench-{len(self.runs)}"}
        answer = self.web.post("/runs/new/", data=page)
        if answer.status_code != httpx.codes.FOUND:
            raise RuntimeError(f"the launch was refused ({answer.status_code}):\n{answer.text[:4000]}")
        self.runs.append(answer.headers["Location"].strip("/").rpartition("/")[2])
        return self.runs[-1]

    def click_stop(self, run: str) -> None:
        answer = self.web.post(f"/runs/{run}/stop", data={"mode": "now"})
        if answer.status_code >= httpx.codes.BAD_REQUEST:
            raise RuntimeError(f"the stop was refused ({answer.status_code}):\n{answer.text[:4000]}")

    def stop(self, run: str) -> None:
        self.click_stop(run)
        self.wait(run, "stopped")

    def wait(self, run: str, status: str) -> None:
        until(lambda: self.status(run) == status, f"the run did not become {status}")

    def status(self, run: str) -> str:
        found: dict[str, str] = self.stack.django(STATE, run=run)
        if found["status"] == "failed":
            raise RuntimeError(f"the run failed: {found['detail']}")
        return found["status"]

    def folder(self, run: str) -> Path:
        return self.stack.runs_dir / run / "1"


def until(condition: Callable[[], bool], problem: str, *, pause_s: float = 0.02, limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{problem} within {limit_s:.0f} s")
        time.sleep(pause_s)


def _interpreter(path: Path) -> Path:
    program = shlex.join([sys.executable, str(HERE / "_describes_itself.py")])
    path.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    path.chmod(0o700)
    return path
