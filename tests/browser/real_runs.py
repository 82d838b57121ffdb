"""Two real runs of a tiny model on the CPU: one that trains to its end, and one that goes on until it is stopped."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.stack import Stack
from tests.waiting import wait_until
from workers.contract.wire.names import FileName
from workers.trainer import demo

MARKS = (pytest.mark.browser, pytest.mark.processes, pytest.mark.trainer)
"""How long a page may wait for a job that imports torch, on a busy machine."""
WARM_UP = 60
"""Steps: enough for some right answers among many wrong ones, so that prompts are solved, unsolved and in between."""
STEPS = 60
COMPONENTS = demo.CONFIG["rewards"]
GRPO: dict[str, Any] = {
    "max_steps": STEPS,
    "learning_rate": 1e-4,
    "adam_beta2": 0.99,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "num_iterations": 2,
    "max_completion_length": 20,
    "temperature": 1.0,
    "beta": 0.02,
    "epsilon": 0.05,
    "loss_type": "dapo",
    "eval_strategy": "steps",
    "eval_steps": 20,
    "per_device_eval_batch_size": 16,
    "num_generations_eval": 2,
    "save_steps": 10,
    "save_total_limit": 3,
    "bf16": False,
    "gradient_checkpointing": False,
    "seed": 42,
}
OTHER = {"max_steps": 100_000, "learning_rate": 5e-5, "beta": 0.0, "num_iterations": 1, "save_steps": 500}
"""What the second run has otherwise: no KL term, one update a generation, and no end of its own."""
CHARTS = (
    ("reward", 1, {"reward": "reward"}),
    ("reward-1", 1, {"thinks": "rewards/thinks/mean"}),
    ("kl", 1, {"KL": "kl"}),
    ("clip", 100, {"all": "clip_ratio/region_mean", "low": "clip_ratio/low_mean", "high": "clip_ratio/high_mean"}),
    ("entropy", 1, {"entropy": "entropy"}),
    ("length", 1, {"mean": "completions/mean_length", "max": "completions/max_length"}),
)
"""Chart, how its values are scaled, and the metric of each line."""
SOLVED = 0.9
"""Of the accuracy, which is 0 or 1."""
MAKE_MODEL = "import sys; from pathlib import Path; from workers.trainer.tiny import make; "
MAKE_MODEL += "make(Path(sys.argv[1]), seed=0, steps=int(sys.argv[2]))"
CATALOGUE = """
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards import saving
from tests.datasets import ready_version
ready_version("Arithmetic", rows, validation=8)
saving.make("Arithmetic", components)
HardwareProfile.objects.create(name="One CPU slot", spec=hardware)
"""
READY = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = bool(host and host.inventory.get("trainer") == "ready")
"""
SUBMIT = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.scheduling import launching
result = launching.submit(launching.LaunchRequest(name=name, host=None, model=model, grpo=grpo, eval_rows=8,
    dataset_version=DatasetVersion.objects.get(dataset__name="Arithmetic", number=1),
    reward_version=RewardVersion.objects.get(config__name="Arithmetic"),
    profile=HardwareProfile.objects.get(name="One CPU slot"), attn_implementation=None),
    user=User.objects.get(username="operator")).pk
"""
PRESET = """
from runs.engine.models import HealthPreset
bounds = {"grad_high": {"warning": 0.001, "bad": 0.002, "source": "Measured on a tiny model."}}
HealthPreset.objects.get_or_create(name="For tiny models", defaults={"bounds": bounds})
"""
STATE = """
from runs.engine.models import Attempt
attempt = Attempt.objects.select_related("run").get(run_id=run)
result = [attempt.status, attempt.run.step, attempt.reason, attempt.detail]
"""


@dataclass(frozen=True)
class RealRun:
    stack: Stack
    id: str
    name: str

    @property
    def address(self) -> str:
        return f"{self.stack.url}/runs/{self.id}/"

    @property
    def folder(self) -> Path:
        """Of its one attempt, on the host: what the trainer itself wrote."""
        return self.stack.runs_dir / self.id / "1"

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The trainer's own lines, without one that it is writing just now."""
        text = (self.folder / FileName.METRICS).read_text()
        found = [json.loads(line) for line in text.split("\n")[:-1]]
        return [line for line in found if line["kind"] == kind]

    def values(self, metric: str) -> dict[int, float]:
        """Step -> what the trainer logged."""
        return {line["step"]: line["data"][metric] for line in self.lines("train") if metric in line["data"]}

    def samples(self) -> list[dict[str, Any]]:
        text = (self.folder / FileName.SAMPLES).read_text()
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def state(self) -> list[Any]:
        found: list[Any] = self.stack.django(STATE, run=self.id)
        return found

    def wait_for_step(self, step: int) -> None:
        wait_until(lambda: self.state()[1] >= step, lambda: str(self.state()))

    def wait_for_end(self, status: str) -> None:
        wait_until(lambda: self.state()[0] in ("succeeded", "failed", "stopped"), lambda: str(self.state()))
        assert self.state()[0] == status, self.state()


def prepare(stack: Stack, python: Path) -> None:
    """The model, and the catalogue that the runs are launched from."""
    problems = demo.problems(40, seed=1)
    rows = [
        {"row": n, "prompt": problem["question"], "answer": problem["answer"]} for n, problem in enumerate(problems)
    ]
    folder = stack.installation.models_dir / "tiny"
    subprocess.run([python, "-c", MAKE_MODEL, folder, str(WARM_UP)], cwd=ROOT, check=True)
    stack.django(CATALOGUE, rows=rows, components=COMPONENTS, hardware=demo.CONFIG["hardware"])
    wait_until(lambda: stack.django(READY), lambda: "the host's trainer is not ready")


def launch(stack: Stack, name: str, **grpo: Any) -> RealRun:
    model = str(stack.installation.models_dir / "tiny")
    return RealRun(stack, stack.django(SUBMIT, name=name, model=model, grpo={**GRPO, **grpo}), name)
