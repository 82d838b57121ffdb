"""Callbacks of the training loop, which write progress and stop all ranks at the same step."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workers.contract.run.row_names import rows_metric
from workers.contract.wire.names import EventKind, FileName
from workers.trainer.configuration.spec import versions
from workers.trainer.recording import memory
from workers.trainer.recording.metrics import LineFile
from workers.trainer.recording.timing import StepTimes
from workers.trainer.recording.waterfall import Waterfall
from workers.trainer.scoring.failures import Failures


def _has_no_rows(name: str, logs: Mapping[str, Any]) -> bool:
    """Return whether a metric is the mean or deviation of a limited reward that applies to none of the batch's rows."""
    reward, _, figure = name.removeprefix("eval_").removeprefix("rewards/").rpartition("/")
    prefix = "eval_" if name.startswith("eval_") else ""
    return figure in ("mean", "std") and logs.get(f"{prefix}{rows_metric(reward)}") == 0


class MetricsWriter(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """The writer of metrics.jsonl. Only rank 0's LineFile writes, but all ranks take part in gathering memory peaks."""

    def __init__(self, metrics: LineFile, stop: "StopCallback", times: StepTimes, waterfall: Waterfall) -> None:
        self._metrics = metrics
        self._stop = stop
        self._times = times
        self._waterfall = waterfall

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        data = {"max_steps": state.max_steps, "step": state.global_step}
        self._metrics.event(EventKind.TRAINING, data, step=state.global_step)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._waterfall.step_begins(state.global_step + 1)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._times.step_done()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        # Only times of steps are logged; TRL prefixes the reward times of evaluations with eval_.
        logs = {
            name: value
            for name, value in (logs or {}).items()
            if not name.startswith("eval_time/") and not _has_no_rows(name, logs or {})
        }
        times = self._times.pop() if "loss" in logs else {}  # evaluations log, too
        # If vLLM sleeps, torch also counts memory that vLLM has released, perhaps more than the GPU has.
        peaks = {} if getattr(args, "vllm_enable_sleep_mode", False) else memory.peaks()
        self._metrics.log(state.global_step, {**logs, **times, **peaks})

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not self._metrics.writes:
            return
        name = f"checkpoint-{state.global_step}"
        package_versions = versions()
        Path(args.output_dir, name, FileName.VERSIONS).write_text(json.dumps(package_versions))
        location = {"path": f"{FileName.CHECKPOINTS}/{name}", "bytes": _size(Path(args.output_dir, name))}
        steps = sorted(int(path.name.rpartition("-")[2]) for path in Path(args.output_dir).glob("checkpoint-*[0-9]"))
        data = {"step": state.global_step, **location, "kept": steps, "versions": package_versions}
        self._metrics.event(EventKind.CHECKPOINT, data, step=state.global_step)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._waterfall.training_ends(state.global_step)
        outcome = "completed"
        if state.global_step < state.max_steps:  # a stop during the last step changes nothing
            outcome = "stopped" if self._stop.requested else "failed" if self._stop.has_failed else outcome
        self._metrics.event(EventKind.TRAINED, {"how": outcome}, step=state.global_step)


def _size(folder: Path) -> int:
    """Return the size of the folder's files in bytes, although other ranks may still be writing theirs."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(root, name)).st_size
    return size


class StopCallback(TrainerCallback):  # type: ignore[misc]
    """The callback that ends training with a checkpoint: if the STOP file exists, if rewards fail too often, and at the
    last step. Only rank 0 checks for the file, and broadcasts the result: otherwise ranks could disagree on when it
    appeared, and wait for each other forever. About failed rewards, all ranks have the same information."""

    def __init__(self, folder: Path, failures: Failures | None = None) -> None:
        self._path = folder / FileName.STOP
        self._failures = failures
        self.requested = False

    @property
    def has_failed(self) -> bool:
        return self._failures is not None and bool(self._failures.verdict)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.requested = self._is_stop_requested(args)
        if self.requested or self.has_failed:
            control.should_training_stop = True
            control.should_save = True
        elif state.global_step >= state.max_steps and args.save_strategy == "steps":
            control.should_save = True  # save the last step whatever the interval; `epoch` does so by itself

    def _is_stop_requested(self, args: TrainingArguments) -> bool:
        requested = args.process_index == 0 and self._path.exists()
        if args.world_size == 1:
            return requested
        flag = torch.tensor([int(requested)], device=args.device)
        torch.distributed.broadcast(flag, src=0)
        return bool(flag.item())
