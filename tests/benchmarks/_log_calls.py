"""A trainer that only logs: measures log calls of 20 metrics, each after some work, as in a training. Argument: FOLDER.

It waits for FOLDER/go, so that whoever started it can first take the control plane away.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from transformers import TrainerControl, TrainerState

from tests.benchmarks._figures import percentile
from workers.contract.wire.names import FileName
from workers.trainer.recording.callbacks import MetricsWriter, StopCallback
from workers.trainer.recording.metrics import LineFile
from workers.trainer.recording.timing import StepTimes
from workers.trainer.recording.waterfall import Waterfall

CALLS = 3_000
WORK_S = 0.002
"""Between two calls the core is busy with something else, as a trainer's is, and the call's code has left its cache."""


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sorted(range(2_000), key=lambda number: -number)


folder = Path(sys.argv[1]).resolve()
metrics = LineFile(folder / FileName.METRICS)
stop = StopCallback(folder)
progress = MetricsWriter(metrics, stop, StepTimes(), Waterfall(lambda step, data: None))
state, control = TrainerState(max_steps=CALLS), TrainerControl()
progress.on_train_begin(None, state, control)
deadline = time.monotonic() + 60
while not (folder / "go").exists() and time.monotonic() < deadline:
    time.sleep(0.02)

took = []
for step in range(1, CALLS + 1):
    state.global_step = step
    logs = {f"metrics/name_{number}": step / (number + 7) for number in range(20)}
    work(WORK_S)
    started = time.perf_counter()
    progress.on_log(None, state, control, logs=logs)
    took.append((time.perf_counter() - started) * 1e6)
progress.on_train_end(None, state, control)
figures = {"p50": percentile(took, 0.5), "p99": percentile(took, 0.99), "max": max(took), "lost": metrics.lost}
(folder / "log_calls.json").write_text(json.dumps(figures))
