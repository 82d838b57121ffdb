"""Ranks: the same command under torchrun, with the exit code and last words of the rank that failed first."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from workers.contract import ZERO, AttemptSpec
from workers.contract.commands import torchrun_arguments
from workers.trainer import environment
from workers.trainer.spec import SpecError, TrainerError

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Set by torchrun for each rank: what is written there reaches the launcher."""


def check(spec: AttemptSpec) -> None:
    """A launcher of somebody's own (accelerate launch, torchrun) must have started what the spec is made for: with
    another number of ranks the batch would be another."""
    started, wanted = int(os.environ.get("WORLD_SIZE", "1")), spec.run.hardware.processes
    if started != wanted:
        raise SpecError(f"The launcher has started {started} processes, but the spec is made for {wanted}.")


def meet(spec: AttemptSpec) -> None:
    """On the CPU accelerate leaves DeepSpeed without a process group until the model is there, and ZeRO-3 shards it
    while it loads."""
    hardware = spec.run.hardware
    if hardware.strategy in ZERO and hardware.trainer_gpus == 0:
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def launch(folder: Path, processes: int) -> int:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    try:
        run(parse_args(torchrun_arguments(processes, folder)))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(failure.message or f"Rank {rank} ended with {failure.exitcode}.", file=sys.stderr, flush=True)
        code = int(failure.exitcode)
        return code if code >= 0 else 128 - code  # -9: ended by signal 9
    return 0


def leave(error: TrainerError | None = None) -> None:
    """The end of a rank that has trained, well or with an error, without taking its libraries down first.

    Destructors of a process group have been seen to wait for a thread that waited for them: the rank never ended, and
    neither did the run. All that the trainer writes is written by then, unbuffered; what it has started goes with it.
    """
    if environment.inside_launcher():
        if error is not None:
            report(str(error))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if error is None else error.exit_code)


def report(sentence: str) -> None:
    """Hand a rank's last words to the launcher; nothing to do in a trainer of one process."""
    if path := os.environ.get(_ERROR_FILE):
        Path(path).write_text(json.dumps({"message": sentence, "timestamp": int(time.time())}), encoding="utf-8")
