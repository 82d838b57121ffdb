"""What a sink costs the step of a training: a tiny real run under a real supervisor, once for each sink.

Within a run blocks of steps alternate: the sinks' processes work, or are stopped by a signal, as if there were none. A
pair's ratio is the mean step time of a working block to that of its stopped neighbour; a working block also sends what
the stopped one left, so a sink works twice as hard as it would. `nothing` has a process that does nothing: its ratio
tells how finely this machine can tell at all. `hangs` never takes anything.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks.overhead import GRPO, interval, until
from tests.datasets import parquet
from tests.fakes.fake_control import FakeControl
from tests.workers.supervisor.attempts import FAKES, Attempt, build_spec
from workers.contract.reports.lines import read_line
from workers.contract.run import sinks
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import EventKind, FileName, StopMode
from workers.settings import HostSettings
from workers.supervisor.processes.child import TRAINER
from workers.trainer import demo

NOTHING, HANGS = "nothing", "hangs"
COMMANDS = {
    NOTHING: ("/bin/sh", "-c", "exec sleep 86400"),
    HANGS: (sys.executable, str(FAKES / "fake_sinks.py")),
}
"""In place of the sinks' own program."""
ROWS, LEFT_OUT = 400, 1
"""Of each block the first step, during which the signal came."""


@dataclass
class Block:
    step_s: float
    processor_s: float
    """Of the trainer, a step."""
    sinks_s: float
    """Of the sinks' processes, for each second of the block."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench sinks", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--block", type=int, default=8, help="steps of a block")
    parser.add_argument("--sinks", default=f"{NOTHING},{sinks.TENSORBOARD},{HANGS}", help="or trackio, wandb (offline)")
    options = parser.parse_args(argv or [])
    python = os.environ.get("GRPO_TRAINER_PYTHON") or str(ROOT / ".venv-train" / "bin" / "python")
    work = Path(tempfile.mkdtemp(prefix="gt-"))
    figures: dict[str, Any] = {}
    try:
        model = work / "models" / "tiny"
        tiny = [python, "-m", "workers.trainer.tiny", str(model), "--quick"]
        subprocess.run(tiny, check=True, cwd=ROOT, capture_output=True)
        for kind in options.sinks.split(","):
            with running(work / kind, kind, python=python, model=model) as attempt:
                figures |= _told(kind, measured(attempt, pairs=options.pairs, block=options.block))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return figures


@contextmanager
def running(folder: Path, kind: str, *, python: str, model: Path) -> Iterator[Attempt]:
    """A run that trains until it is stopped, with one sink."""
    rows = [{"prompt": one["question"], "answer": one["answer"]} for one in demo.problems(ROWS, seed=0)]
    control = FakeControl(parquet(rows)).start()
    folder.mkdir()
    settings = HostSettings(
        runs_dir=folder / "runs",
        control_url=control.url,
        host_name="testhost",
        trainer_python=python,
        model_roots=(model.parent,),
        sinks_command=COMMANDS.get(kind, ()),
    )
    spec = build_spec(control, model=model)
    sink = SinkSpec(kind if kind in sinks.TITLES else sinks.WANDB, project=kind)
    reward = RewardSpec("accuracy", "numeric_match", 1.0, {"source": "answer tag"})
    hardware = replace(spec.run.hardware, threads=1)
    run = replace(spec.run, sinks=(sink,), rewards=(reward,), grpo={**GRPO, "max_steps": 10**6}, hardware=hardware)
    attempt = Attempt(control, settings, replace(spec, run=run))
    control.watched = False
    try:
        launched = attempt.launch()
        until(lambda: bool(control.train_steps() or control.ended), f"no step came ({launched})")
        if control.ended:
            raise RuntimeError(f"the run failed:\n{attempt.why()}")
        yield attempt
        attempt.ask_to_stop(StopMode.NOW)
        attempt.wait_for_end()
        attempt.wait_until_gone()
    finally:
        attempt.kill_leftovers()
        control.close()


def measured(attempt: Attempt, *, pairs: int, block: int) -> list[tuple[Block, Block]]:
    """(working, stopped) for each pair; which of them comes first alternates."""
    found, steps = [], Steps(attempt.folder / FileName.METRICS)
    for pair in range(pairs):
        acts = (_working, _stopped) if pair % 2 else (_stopped, _working)
        blocks = {act: _block(attempt, steps, act, block) for act in acts}
        found.append((blocks[_working], blocks[_stopped]))
    _working(_processes(attempt, sinks.ROLE))
    return found


def _block(attempt: Attempt, steps: Steps, act: Callable[[Sequence[psutil.Process]], None], count: int) -> Block:
    senders, trainer = _processes(attempt, sinks.ROLE), _processes(attempt, TRAINER)
    act(senders)
    steps.wait_for(LEFT_OUT)
    before = _seconds(trainer), _seconds(senders)
    first, last = steps.wait_for(count)
    after = _seconds(trainer), _seconds(senders)
    took = last - first
    return Block(took / count, (after[0] - before[0]) / count, (after[1] - before[1]) / took)


class Steps:
    """The times at which steps were logged, read as they come."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.times: list[float] = []

    def wait_for(self, more: int) -> tuple[float, float]:
        """The time of the newest step, and that of the last of so many more."""
        self.look()
        begin, wanted = self.times[-1], len(self.times) + more
        until(lambda: self.look() >= wanted, "the training stands still", pause_s=0.02)
        return begin, self.times[wanted - 1]

    def look(self) -> int:
        """The number of steps."""
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._offset += len(new)
        lines = filter(None, map(read_line, new.splitlines()))
        self.times += [line.t for line in lines if line.kind == EventKind.TRAIN and "loss" in (line.data() or {})]
        return len(self.times)


def _told(kind: str, pairs: list[tuple[Block, Block]]) -> dict[str, Any]:
    ratios = [working.step_s / stopped.step_s for working, stopped in pairs]
    processor = [working.processor_s / stopped.processor_s for working, stopped in pairs]
    low, high = interval(ratios)
    processor_low, processor_high = interval(processor)
    return {
        f"{kind}_step_ratio": round(statistics.median(ratios), 4),
        f"{kind}_step_ratio_interval": [round(low, 4), round(high, 4)],
        f"{kind}_processor_ratio": round(statistics.median(processor), 4),
        f"{kind}_processor_ratio_interval": [round(processor_low, 4), round(processor_high, 4)],
        f"{kind}_step_ms": round(1000 * statistics.median(stopped.step_s for _, stopped in pairs), 1),
        f"{kind}_process_percent": round(100 * statistics.median(working.sinks_s for working, _ in pairs), 2),
    }


def _working(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        process.resume()


def _stopped(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        process.suspend()


def _processes(attempt: Attempt, role: str) -> list[psutil.Process]:
    """The newest process of a role with its descendants."""
    pids = [line["data"]["pid"] for line in attempt.outbox() if line["kind"] == "process_started"]
    roles = [line["data"]["role"] for line in attempt.outbox() if line["kind"] == "process_started"]
    pid = dict(zip(roles, pids, strict=True))[role]
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _seconds(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total
