"""A learnability check of the demo's model on the CPU, through the whole product: how long it takes, and how near its
step time is to that of the run it stands for.

`learnability_s`: from the launch to the receipt. `step_time_prediction_error_percent`: against the mean of the run's
first 20 steps, the first included. `same_seed_same_numbers`: two checks give the same completions and rewards. The
figures of a merge and a download are described in `_finished_models`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import _finished_models
from tests.browser import real_runs
from tests.browser.real_runs import RealRun
from tests.stack import ROOT, Stack
from workers.trainer import demo

STEPS = 20
SUBMIT = """
from controlplane.accounts.models import User
from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import HardwareProfile
from controlplane.rewards.models import RewardVersion
from runs.scheduling import launching
result = launching.submit(launching.LaunchRequest(name=kind, kind=kind, model=model, grpo=grpo,
    dataset_version=DatasetVersion.objects.get(dataset__name="Arithmetic", number=1),
    reward_version=RewardVersion.objects.get(config__name="Arithmetic"),
    profile=HardwareProfile.objects.get(name="One CPU slot")), user=User.objects.get(username="operator")).pk
"""
PREDICTED = """
from runs.learnability import results
from runs.models import Run
result = results.of_run(Run.objects.get(pk=run)).step_s
"""
GRPO = {name: value for name, value in demo.CONFIG["grpo"].items() if not name.startswith("eval")}


def main(argv: list[str]) -> dict[str, Any]:
    argparse.ArgumentParser(prog="bench sampling").parse_args(argv)
    python = Path(os.environ.get("GRPO_TRAINER_PYTHON") or ROOT / ".venv-train" / "bin" / "python")
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), {"GRPO_TRAINER_PYTHON": str(python)})
    try:
        real_runs.prepare(stack, python)
        first, took = _ended(stack, "check")
        again, _ = _ended(stack, "check")
        run, _ = _ended(stack, "train")
        predicted = float(stack.django(PREDICTED, run=first.id))
        actual = statistics.fmean(run.values("step_time").values())
        return {
            "learnability_s": round(took, 1),
            "predicted_step_s": round(predicted, 4),
            "step_s": round(actual, 4),
            "step_time_prediction_error_percent": round(100 * abs(predicted - actual) / actual, 1),
            "same_seed_same_numbers": _numbers(first) == _numbers(again),
            **_finished_models.measure(stack),
        }
    finally:
        stack.stop()


def _ended(stack: Stack, kind: str) -> tuple[RealRun, float]:
    started = time.perf_counter()
    model = str(stack.installation.models_dir / "tiny")
    run = RealRun(stack, stack.django(SUBMIT, kind=kind, model=model, grpo={**GRPO, "max_steps": STEPS}), kind)
    run.wait_for_end("succeeded")
    return run, time.perf_counter() - started


def _numbers(run: RealRun) -> list[str]:
    return [json.dumps({**group, "t": None}) for group in run.samples()]
