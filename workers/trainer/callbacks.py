"""What the training loop calls: progress lines, and the stop that all ranks take at the same step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workers.contract import FileName
from workers.trainer import memory
from workers.trainer.failures import Failures
from workers.trainer.metrics import LineFile
from workers.trainer.timing import StepTimes


class MetricsWriter(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """Writes metrics.jsonl. Only rank 0's LineFile writes; the ranks' memory is gathered by all of them."""

    def __init__(self, metrics: LineFile, stop: StopCallback, times: StepTimes) -> None:
        self._metrics = metrics
        self._stop = stop
        self._times = times

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._metrics.event("train_begin", step=state.global_step, max_steps=state.max_steps)

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
        logs = logs or {}
        taken = self._times.taken() if "loss" in logs else {}  # an evaluation logs too
        self._metrics.log(state.global_step, {**logs, **taken, **memory.peaks()})

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        path = f"{FileName.CHECKPOINTS}/checkpoint-{state.global_step}"
        self._metrics.event("save", step=state.global_step, path=path)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        early = state.global_step < state.max_steps  # a stop that comes in the last step changes nothing
        told = {"stopped": self._stop.seen and early, "failed": self._stop.failed and early and not self._stop.seen}
        self._metrics.event("train_end", step=state.global_step, **told)


class StopCallback(TrainerCallback):  # type: ignore[misc]
    """Ends the training with a checkpoint: at the STOP file's word, when rewards fail too often, at the last step.

    Rank 0 alone looks for the file and tells the others, because ranks that each look for themselves can see it
    appear between two of them, and then wait for each other forever. Of failed rewards all ranks know the same.
    """

    def __init__(self, folder: Path, failures: Failures | None = None) -> None:
        self._path = folder / FileName.STOP
        self._failures = failures
        self.seen = False

    @property
    def failed(self) -> bool:
        return self._failures is not None and bool(self._failures.verdict)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.seen = self._asked(args)
        if self.seen or self.failed:
            control.should_training_stop = True
            control.should_save = True
        elif state.global_step >= state.max_steps and args.save_strategy != "no":
            control.should_save = True  # whatever the interval, the last step's model is kept

    def _asked(self, args: TrainingArguments) -> bool:
        asked = args.process_index == 0 and self._path.exists()
        if args.world_size == 1:
            return asked
        flag = torch.tensor([int(asked)], device=args.device)
        torch.distributed.broadcast(flag, src=0)
        return bool(flag.item())
