"""What the product costs a training: a log call, and a step beside the same training by a bare TRL script.

Log calls of 20 metrics, alone and under a real supervisor whose control plane has died. Steps: pairs of runs, one
through the whole product (web, Celery, supervisor, trainer) and one bare, in alternating order, on one torch thread;
a pair's ratio is the time from the first log line to the last. Both have to give the same series to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.fake_control import FakeControl
from tests.stack import Stack
from tests.workers.supervisor.attempts import Attempt, build_spec
from workers.settings import HostSettings
from workers.trainer import demo

HERE = Path(__file__).parent
LIMIT_S = 900.0
TIMES = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
REWARDS = [
    {"name": "accuracy", "function": "numeric_match", "weight": 1.0, "params": {"source": "answer tag"}},
    {"name": "variety", "function": "unique_chars_normalised", "weight": 0.5, "params": {}},
]
GRPO: dict[str, Any] = {
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "num_iterations": 2,
    "max_completion_length": 24,
    "beta": 0.02,
    "save_steps": 1000,
    "seed": 42,
}
PREPARE = """
import json
from pathlib import Path
from controlplane.platform.accounts.models import User
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards import saving
from tests.datasets import ready_version
ready_version("bench", [json.loads(line) for line in Path(dataset).read_bytes().splitlines()])
saving.make("bench", rewards)
spec = {"rollout": "transformers", "trainer_gpus": 0, "processes": 1, "cpu_slots": 1, "threads": 1}
HardwareProfile.objects.create(name="bench", spec=spec, owner=User.objects.get(username="operator"))
"""
SUBMIT = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.scheduling import launching
result = launching.submit(launching.LaunchRequest(name="bench", host=None, dataset_version=DatasetVersion.objects.get(),
    reward_version=RewardVersion.objects.get(config__name="bench"), profile=HardwareProfile.objects.get(name="bench"),
    model=model, grpo=grpo), user=User.objects.get(username="operator")).id
"""
STATE = """
from runs.engine.models import Attempt
attempt = Attempt.objects.get(run_id=run)
result = [attempt.status, attempt.detail]
"""
READY = """
from controlplane.catalogue.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = host and host.inventory.get("trainer")
"""

Series = list[dict[str, Any]]


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench overhead", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args(argv or [])
    python = os.environ.get("GRPO_TRAINER_PYTHON") or str(ROOT / ".venv-train" / "bin" / "python")
    work = Path(tempfile.mkdtemp(prefix="gt-"))
    try:
        figures = log_calls(python, work)
        return {**figures, **steps(python, work, options.pairs, options.steps)}
    finally:
        shutil.rmtree(work, ignore_errors=True)


# --- log calls ----------------------------------------------------------------------------------------------


def log_calls(python: str, work: Path) -> dict[str, Any]:
    alone = work / "alone"
    alone.mkdir()
    (alone / "go").touch()
    subprocess.run([python, str(HERE / "_log_calls.py"), str(alone)], check=True, cwd=ROOT)
    dead = _log_calls_while_the_control_plane_is_dead(python, work / "runs")
    figures: dict[str, Any] = {}
    for suffix, found in (("", json.loads((alone / "log_calls.json").read_text())), ("_control_dead", dead)):
        figures[f"log_call_p50_us{suffix}"] = round(found["p50"], 1)
        figures[f"log_call_p99_us{suffix}"] = round(found["p99"], 1)
        figures[f"log_call_max_us{suffix}"] = round(found["max"], 1)
    return figures


def _log_calls_while_the_control_plane_is_dead(python: str, runs_dir: Path) -> dict[str, float]:
    runs_dir.mkdir()
    control = FakeControl(_dataset()).start()
    command = (python, str(HERE / "_log_calls.py"))
    settings = HostSettings(
        runs_dir=runs_dir, control_url=control.url, host_name="testhost", trainer_command=command, drain_deadline_s=2.0
    )
    attempt = Attempt(control, settings, build_spec(control, model=runs_dir))
    try:
        attempt.launch()
        until(lambda: bool(control.of_kind("training")), "the logging trainer never came")
        control.stop()
        (attempt.folder.path / "go").touch()
        answer = attempt.folder.path / "log_calls.json"
        until(answer.exists, "the logging trainer did not end")
        attempt.wait_until_gone()
        found: dict[str, float] = json.loads(answer.read_text())
        return found
    finally:
        control.close()
        attempt.kill_leftovers()


# --- steps --------------------------------------------------------------------------------------------------


def steps(python: str, work: Path, pairs: int, count: int) -> dict[str, Any]:
    model = work / "model"
    subprocess.run(
        [python, "-m", "workers.trainer.tiny", str(model), "--quick"], check=True, cwd=ROOT, capture_output=True
    )
    (work / "rows.jsonl").write_bytes(_dataset())
    grpo = {**GRPO, "max_steps": count}
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), {"GRPO_TRAINER_PYTHON": python})
    try:
        shutil.copytree(model, stack.installation.models_dir / "bench")
        stack.django(PREPARE, dataset=str(work / "rows.jsonl"), rewards=REWARDS)
        until(lambda: stack.django(READY) == "ready", "the host's trainer is not ready", pause_s=1.0)
        ratios, equal = [], []
        for pair in range(pairs):
            runners = [lambda: _product(stack, grpo), lambda: _bare(python, work, model, grpo)]
            order = (0, 1) if pair % 2 else (1, 0)
            found = {which: runners[which]() for which in order}
            ratios.append(_duration(found[0]) / _duration(found[1]))
            equal.append(_same(found[0], found[1]))
    finally:
        stack.stop()
    low, high = interval(ratios)
    return {
        "step_ratio": round(statistics.median(ratios), 4),
        "step_ratio_low": round(low, 4),
        "step_ratio_high": round(high, 4),
        "step_ratios": [round(ratio, 4) for ratio in ratios],
        "identical_rewards": all(equal),
    }


def _product(stack: Stack, grpo: dict[str, Any]) -> Series:
    run = stack.django(SUBMIT, model=str(stack.installation.models_dir / "bench"), grpo=grpo)
    folder = stack.runs_dir / run / "1"

    def ended() -> bool:
        # The file first: asking Django starts a process, which would sit on the core that is being measured.
        if not _finished(folder / "metrics.jsonl"):
            return False
        status, detail = stack.django(STATE, run=run)
        if status == "failed":
            raise RuntimeError(f"the run failed: {detail}")
        return bool(status == "succeeded")

    until(ended, f"run {run} did not end", pause_s=1.0)
    return _series(folder / "metrics.jsonl")


def _finished(path: Path) -> bool:
    return path.exists() and b'"kind":"trained"' in path.read_bytes()


def _bare(python: str, work: Path, model: Path, grpo: dict[str, Any]) -> Series:
    folder = Path(tempfile.mkdtemp(dir=work))
    settings = {"model": str(model), "rewards": REWARDS, "grpo": grpo, "dataset": str(work / "rows.jsonl")}
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [python, str(HERE / "_bare_grpo.py"), str(folder), str(folder / "settings.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "CI": "1"})
    if done.returncode:
        raise RuntimeError(f"the bare script failed:\n{done.stderr[-3000:]}")
    return _series(folder / "bare.jsonl")


def _series(path: Path) -> Series:
    """The log lines of training steps."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [line for line in lines if "loss" in line.get("data", {})]


def _duration(series: Series) -> float:
    return float(series[-1]["t"] - series[0]["t"])


def _same(product: Series, bare: Series) -> bool:
    """Every value of the bare script's, step by step, to the last bit; ours has some more."""
    if len(product) != len(bare):
        return False
    for mine, theirs in zip(product, bare, strict=True):
        wanted = {name: value for name, value in theirs["data"].items() if name not in TIMES and value is not None}
        if any(mine["data"].get(name) != value for name, value in wanted.items()):
            return False
    return True


def interval(values: list[float], rounds: int = 10_000) -> tuple[float, float]:
    """95% bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds) - 1]


def _dataset() -> bytes:
    rows = [
        {"row": number, "prompt": problem["question"], "answer": problem["answer"]}
        for number, problem in enumerate(demo.problems(200, seed=0))
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def until(condition: Callable[[], bool], problem: str, *, pause_s: float = 0.05) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{problem} within {LIMIT_S:.0f} s")
        time.sleep(pause_s)


if __name__ == "__main__":
    load = os.getloadavg()[0]
    print(json.dumps({**main(sys.argv[1:]), "load_before": load, "load_after": os.getloadavg()[0]}))
