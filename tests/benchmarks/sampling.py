"""A learnability check of the demo's model on the CPU, through the whole product: how long it takes, and how near its
step time is to that of the run it stands for.

`learnability_s`: from the launch to the receipt. `step_time_prediction_error_percent`: against the mean of the run's
first 20 steps, the first included. `same_seed_same_numbers`: two checks give the same completions and rewards.
`chat_load_s`: from the click on Chat of the run's checkpoint until its model is ready. `chat_first_token_s`: from the
POST of a message to the first text on the page, the median of several messages. The figures of
a merge and a download are described in `_finished_models`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks import _finished_models
from tests.browser import real_runs
from tests.browser.real_runs import RealRun
from tests.stack import Stack
from workers.trainer import demo

STEPS = 20
SUBMIT = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.scheduling import launching
result = launching.submit(launching.LaunchRequest(name=kind, kind=kind, model=model, grpo=grpo,
    dataset_version=DatasetVersion.objects.get(dataset__name="Arithmetic", number=1),
    reward_version=RewardVersion.objects.get(config__name="Arithmetic"),
    profile=HardwareProfile.objects.get(name="One CPU slot")), user=User.objects.get(username="operator")).pk
"""
PREDICTED = """
from runs.launch.learnability import results
from runs.engine.models import Run
result = results.of_run(Run.objects.get(pk=run)).step_s
"""
CHECKPOINT = """
from runs.engine.records import RunEvent
result = RunEvent.objects.filter(run_id=run, kind="checkpoint").latest("pk").pk
"""
MESSAGES = 5
ANSWER = r'class="card chat-answer".*?<pre class="words" tabindex="0">[^<]'
GRPO = {name: value for name, value in demo.CONFIG["grpo"].items() if not name.startswith("eval")}


def main(argv: list[str]) -> dict[str, Any]:
    argparse.ArgumentParser(prog="bench sampling").parse_args(argv)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
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
            **_chat(stack, run),
        }
    finally:
        stack.stop()


def _chat(stack: Stack, run: RealRun) -> dict[str, float]:
    saved = stack.django(CHECKPOINT, run=run.id)
    with chat_client(stack, saved) as client:
        started = time.perf_counter()
        client.post("/")
        _wait(lambda: ">ready<" in client.get("/state").text)
        loaded = time.perf_counter() - started
        first_tokens = [first_token(client, number) for number in range(MESSAGES)]
    return {"chat_load_s": round(loaded, 2), "chat_first_token_s": round(statistics.median(first_tokens), 3)}


def chat_client(stack: Stack, saved: int) -> httpx.Client:
    """An operator's, at the chat of a saved model."""
    client = stack.client("operator")
    client.base_url = httpx.URL(f"{stack.url}/models/{saved}/chat")
    return client


def first_token(client: httpx.Client, number: int) -> float:
    before = _last_turn(client)
    form = {"text": f"Compute {number} + 1.", "temperature": 0.7, "max_tokens": 20, "seed": number, "new": "on"}
    started = time.perf_counter()
    client.post("/ask", data=form)
    _wait(lambda: _last_turn(client) != before)
    turn = f"/turns/{_last_turn(client)}/"
    _wait(lambda: re.search(ANSWER, client.get(turn).text, re.DOTALL) is not None)
    took = time.perf_counter() - started
    _wait(lambda: "every 250ms" not in client.get(turn).text)
    return took


def _last_turn(client: httpx.Client) -> str:
    return _found(r'name="after" value="(\d+)"', client.get("/state").text)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + 60
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError("the chat does not answer")
        time.sleep(0.01)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match.group(1) if match else ""


def _ended(stack: Stack, kind: str) -> tuple[RealRun, float]:
    started = time.perf_counter()
    model = str(stack.installation.models_dir / "tiny")
    run = RealRun(stack, stack.django(SUBMIT, kind=kind, model=model, grpo={**GRPO, "max_steps": STEPS}), kind)
    run.wait_for_end("succeeded")
    return run, time.perf_counter() - started


def _numbers(run: RealRun) -> list[str]:
    return [json.dumps({**group, "t": None}) for group in run.samples()]
