"""Callbacks of the training loop: they write progress, and stop all ranks at the same step."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workers.contract.wire.names import EventKind, FileName
from workers.trainer.configuration.spec import versions
from workers.trainer.recording import memory
from workers.trainer.recording.metrics import LineFile
from workers.trainer.recording.timing import StepTimes
from workers.trainer.recording.waterfall import Waterfall
from workers.trainer.scoring.failures import Failures


class MetricsWriter(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """The writer of metrics.jsonl. Only rank 0's LineFile writes; all ranks take part in gathering memory figures."""

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
        # Times are those of steps; TRL has put reward times of evaluations under eval_.
        logs = {name: value for name, value in (logs or {}).items() if not name.startswith("eval_time/")}
        times = self._times.taken() if "loss" in logs else {}  # an evaluation logs too
        # If vLLM sleeps, torch also counts memory that it has released: perhaps more than the card has.
        peaks = {} if getattr(args, "vllm_enable_sleep_mode", False) else memory.peaks()
        self._metrics.log(state.global_step, {**logs, **times, **peaks})

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not self._metrics.writes:
            return
        name = f"checkpoint-{state.global_step}"
        packages = versions()
        Path(args.output_dir, name, FileName.VERSIONS).write_text(json.dumps(packages))
        saved = {"path": f"{FileName.CHECKPOINTS}/{name}", "bytes": _size(Path(args.output_dir, name))}
        steps = sorted(int(path.name.rpartition("-")[2]) for path in Path(args.output_dir).glob("checkpoint-*[0-9]"))
        data = {"step": state.global_step, **saved, "kept": steps, "versions": packages}
        self._metrics.event(EventKind.CHECKPOINT, data, step=state.global_step)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._waterfall.training_ends(state.global_step)
        how = "completed"
        if state.global_step < state.max_steps:  # a stop during the last step changes nothing
            how = "stopped" if self._stop.requested else "failed" if self._stop.failed else how
        self._metrics.event(EventKind.TRAINED, {"how": how}, step=state.global_step)


def _size(folder: Path) -> int:
    """Sum the bytes of the folder's files; other ranks may still be writing theirs."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total


class StopCallback(TrainerCallback):  # type: ignore[misc]
    """A callback that ends the training with a checkpoint.

    It does so if the STOP file exists, if rewards fail too often, and at the last step.

    Only rank 0 checks for the file and broadcasts the result: otherwise ranks could disagree when it appears, and wait
    for each other forever. All ranks know the same about failed rewards.
    """

    def __init__(self, folder: Path, failures: Failures | None = None) -> None:
        self._path = folder / FileName.STOP
        self._failures = failures
        self.requested = False

    @property
    def failed(self) -> bool:
        return self._failures is not None and bool(self._failures.verdict)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.requested = self._check(args)
        if self.requested or self.failed:
            control.should_training_stop = True
            control.should_save = True
        elif state.global_step >= state.max_steps and args.save_strategy == "steps":
            control.should_save = True  # the last step's model is saved, whatever the interval; `epoch` does it itself

    def _check(self, args: TrainingArguments) -> bool:
        requested = args.process_index == 0 and self._path.exists()
        if args.world_size == 1:
            return requested
        flag = torch.tensor([int(requested)], device=args.device)
        torch.distributed.broadcast(flag, src=0)
        return bool(flag.item())
