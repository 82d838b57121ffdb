"""From a metric line to a browser, and from a click to a process, through the whole product.

Everything is real (supervisor, sync, ingest, Valkey, websocket) but the trainer, which writes 20 metrics a line on a
beat. Frames: line written -> frame received, at 1 and at 200 viewers in one process beside it. Clicks: the POST of
the New run page -> the trainer's first act; the POST of Stop -> nothing of its tree is left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import websockets

from tests.benchmarks._figures import percentile
from tests.stack import Stack, command_of

TRAINER = Path(__file__).with_name("_ticking_trainer.py")
PREPARE = """
import hashlib
from controlplane.datasets.models import Dataset, DatasetVersion
from controlplane.hardware.models import HardwareProfile
from controlplane.rewards.models import RewardConfig
from runs.forms import LaunchForm
from runs.prefill import as_sent
rows = b"".join(b'{"row": %d, "prompt": "1+1", "answer": "2"}\\n' % n for n in range(64))
version = DatasetVersion.objects.create(
    dataset=Dataset.objects.create(name="bench"), number=1, status=DatasetVersion.READY, rows=64,
    sha256=hashlib.sha256(rows).hexdigest(), mapping={"prompt": "prompt", "answer": "answer", "chat": False})
version.rows_path.parent.mkdir(parents=True, exist_ok=True)
version.rows_path.write_bytes(rows)
config = RewardConfig.objects.create(name="bench", components=[{"name": "format", "function": "think_tags"}])
profile = HardwareProfile.objects.get(name="CPU")
start = {"model": model, "dataset_version": version.pk, "reward_config": config.pk, "profile": profile.pk}
result = as_sent(LaunchForm(initial=start))
"""
TRAINER_STATE = """
from controlplane.hardware.models import Host
host = Host.objects.filter(name="testhost").first()
result = host and host.inventory.get("trainer")
"""
STATE = """
from controlplane.serving.outcome import rows_stored
from runs.models import Attempt
attempt = Attempt.objects.get(run_id=run)
result = {"status": attempt.status, "detail": attempt.detail, "stored": rows_stored(attempt) if count else None}
"""
LIMIT_S = 120.0


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), {"GRPO_TRAINER_COMMAND": command_of(TRAINER)})
    try:
        bench = Live(stack)
        figures: dict[str, Any] = {}
        for viewers in (1, options.viewers):
            frames = bench.frames(viewers, options.seconds)
            figures[f"frame_p50_ms_{viewers}"] = round(percentile(frames, 0.5) * 1000, 1)
            figures[f"frame_p95_ms_{viewers}"] = round(percentile(frames, 0.95) * 1000, 1)
            figures[f"frames_{viewers}"] = len(frames)
        figures["ingest_rows_per_s"] = round(bench.ingest(options.rows))
        clicks = [bench.click() for _ in range(options.clicks)]
        figures["launch_ms_p50"] = round(percentile([launch for launch, _ in clicks], 0.5) * 1000)
        figures["stop_ms_p50"] = round(percentile([stop for _, stop in clicks], 0.5) * 1000)
        return {**figures, "rows_lost": bench.rows_lost()}
    finally:
        stack.stop()


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench live", description=__doc__)
    parser.add_argument("--viewers", type=int, default=200, help="viewers of the second round")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each round")
    parser.add_argument("--rows", type=int, default=20_000, help="lines of the ingest burst")
    parser.add_argument("--clicks", type=int, default=5, help="launches and stops")
    return parser.parse_args(argv)


class Live:
    """A stack with a catalogue, and the runs that were launched on it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.runs: list[str] = []
        model = stack.installation.models_dir / "bench"
        model.mkdir()
        (model / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}')
        self.page: dict[str, Any] = stack.django(PREPARE, model=str(model))
        self.web = stack.client("operator")
        until(lambda: stack.django(TRAINER_STATE) == "ready", "the host's trainer is not ready")

    def frames(self, viewers: int, seconds: float) -> list[float]:
        """Seconds from line to frame, of every row that every viewer received."""
        run = self.launch(pause_s=0.2, steps=1_000_000)
        latencies = asyncio.run(self._watch(run, viewers, seconds))
        self.stop(run)
        return latencies

    async def _watch(self, run: str, viewers: int, seconds: float) -> list[float]:
        latencies: list[float] = []
        since = math.inf
        url = f"{self.stack.url.replace('http', 'ws', 1)}/ws/runs/{run}/?after=0"
        cookie = "; ".join(f"{name}={value}" for name, value in self.stack.cookies("viewer").items())

        async def view() -> None:
            headers = {"Cookie": cookie}
            async with websockets.connect(url, origin=self.stack.url, additional_headers=headers, max_size=None) as ws:
                async for text in ws:
                    now = time.time()
                    # What was written before everybody watched is a viewer's catching up, not the way of a line.
                    rows = json.loads(text).get("rows", ())
                    latencies.extend(now - row[1] for row in rows if row[3] == "train" and row[1] >= since)

        tasks = [asyncio.create_task(view()) for _ in range(viewers)]
        # Until everybody is connected and the run counts as watched.
        await asyncio.sleep(3 + viewers / 50)
        since = time.time()
        await asyncio.sleep(seconds)
        failed = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if failed:
            raise RuntimeError(f"{len(failed)} of {viewers} viewers lost their connection")
        return latencies

    def ingest(self, rows: int) -> float:
        """Rows a second from the trainer's file into the store, while nobody watches."""
        run = self.launch(pause_s=0, steps=rows)
        until(lambda: self.state(run)["status"] == "succeeded", "the burst did not end")
        took = self.stack.django(
            "from runs.models import Attempt, RunEvent\n"
            "attempt = Attempt.objects.get(run_id=run)\n"
            "result = (attempt.ended_at - attempt.started_at).total_seconds()",
            run=run,
        )
        return rows / float(took)

    def click(self) -> tuple[float, float]:
        """Seconds from the launch to the trainer's first act, and from the stop until all of it is gone."""
        clicked = time.time()
        run = self.launch(pause_s=0.2, steps=1_000_000)
        alive = self.folder(run) / "alive"
        until(lambda: alive.exists() and alive.read_text() != "", "the trainer never came")
        launch_s = float(alive.read_text()) - clicked
        pids = self.folder(run) / "pids.json"
        until(lambda: (self.folder(run) / "metrics.jsonl").exists() and pids.exists(), "the trainer wrote nothing")
        tree = [int(pid) for pid, _ in json.loads(pids.read_text())["processes"]]
        clicked = time.time()
        self.stop(run, wait=False)
        until(lambda: not any(lives(pid) for pid in tree), "its processes never went", pause_s=0.002)
        stop_s = time.time() - clicked
        until(lambda: self.state(run)["status"] == "stopped", "the run was not stopped")
        return launch_s, stop_s

    def launch(self, *, pause_s: float, steps: int) -> str:
        page = {**self.page, "name": f"bench every {pause_s} s", "max_steps": steps, "key": f"bench-{len(self.runs)}"}
        answer = self.web.post("/runs/new/", data=page)
        if answer.status_code != httpx.codes.FOUND:
            raise RuntimeError(f"the launch was refused ({answer.status_code}):\n{answer.text[:4000]}")
        self.runs.append(answer.headers["Location"].strip("/").rpartition("/")[2])
        return self.runs[-1]

    def stop(self, run: str, *, wait: bool = True) -> None:
        self.web.post(f"/runs/{run}/stop", data={"mode": "now"})
        if wait:
            until(lambda: self.state(run)["status"] == "stopped", "the run was not stopped")

    def state(self, run: str, *, count: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = self.stack.django(STATE, run=run, count=count)
        if found["status"] == "failed":
            raise RuntimeError(f"the run failed: {found['detail']}")
        return found

    def folder(self, run: str) -> Path:
        return self.stack.runs_dir / run / "1"

    def rows_lost(self) -> int:
        """Metric lines that never reached the outbox, and outbox lines that are not in the store."""
        lost = 0
        for run in self.runs:
            outbox = (self.folder(run) / "outbox.jsonl").read_bytes().splitlines()
            logged = (self.folder(run) / "metrics.jsonl").read_bytes().count(b'"event": "log"')
            sent = sum(b'"kind":"train"' in line.replace(b" ", b"") for line in outbox)
            lost += (logged - sent) + (len(outbox) - self.state(run, count=True)["stored"])
        return lost


def until(condition: Callable[[], bool], problem: str, *, pause_s: float = 0.02) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{problem} within {LIMIT_S:.0f} s")
        time.sleep(pause_s)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
