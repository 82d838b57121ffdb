"""The launch of ranks with torchrun, and the report of the first rank that failed."""

import importlib
import json
import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from workers.contract.run.hardware import ZERO, Rollout
from workers.contract.run.spec import AttemptSpec
from workers.contract.stack.commands import GROUP_STORE, RANKS, torchrun_arguments
from workers.trainer.configuration import environment
from workers.trainer.configuration.spec import SpecError, TrainerError

_GROUP_FILE = "GRPO_RANKS_MEET_IN"
"""Environment variable with the path of the file through which the ranks join their process group, set by `launch`."""
_TIMEOUT_S = 1800
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Environment variable, set by torchrun for each rank, with the path of the file whose content reaches the launcher."""


def check(spec: AttemptSpec) -> None:
    """Check that an external launcher (accelerate launch, torchrun) started as many ranks as the spec has, since a
    different number would change the batch. Raises SpecError if it didn't."""
    actual, expected = int(os.environ.get("WORLD_SIZE", "1")), spec.run.hardware.processes
    if actual != expected:
        raise SpecError(f"The launcher has started {actual} processes, but the spec is for {expected}.")


def join_group(spec: AttemptSpec) -> None:
    """Join the process group through a file, because by default rank 0 would listen for the others on every interface.
    On a CPU, accelerate gives DeepSpeed no process group until the model is loaded, but ZeRO-3 shards the model while
    it is loaded."""
    hardware = spec.run.hardware
    if hardware.rollout is Rollout.COLOCATE:
        keep_stores_on_loopback()
    if path := os.environ.get(_GROUP_FILE):
        import torch.distributed

        torch.distributed.init_process_group(
            "cuda:nccl,cpu:gloo" if hardware.trainer_gpus else "gloo",
            init_method=Path(path).as_uri(),
            rank=environment.rank(),
            world_size=hardware.processes,
            timeout=timedelta(seconds=float(spec.run.grpo.get("ddp_timeout", _TIMEOUT_S))),
        )
    if hardware.strategy in ZERO and hardware.trainer_gpus == 0:
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def keep_stores_on_loopback() -> None:
    """Make torch's stores on ports listen on loopback instead of every interface. vLLM inside a trainer creates a store
    for its own process group."""
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    store = rendezvous.TCPStore

    def on_loopback(*place: Any, **options: Any) -> Any:
        if options.get("is_master"):
            with suppress(OSError):  # the port is in use: torch shares its own store, or says so
                listener = socket.create_server(("127.0.0.1", options["port"] if "port" in options else place[1]))
                options["master_listen_fd"] = listener.detach()
        return store(*place, **options)

    rendezvous.TCPStore = on_loopback


def launch(folder: Path, processes: int) -> int:
    """Run the ranks until they end, and return the exit code."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    ranks_folder = folder / RANKS
    shutil.rmtree(ranks_folder, ignore_errors=True)  # left by an earlier start of a dry run's script
    ranks_folder.mkdir(mode=0o700)
    os.environ[_GROUP_FILE] = str(ranks_folder / GROUP_STORE)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # torchrun's own store for its ranks, on every interface
    try:
        run(parse_args(torchrun_arguments(processes, folder)))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(failure.message or f"Rank {rank} exited with code {failure.exitcode}.", file=sys.stderr, flush=True)
        code = int(failure.exitcode)
        return code if code >= 0 else 128 - code  # -9: killed by signal 9
    return 0


def exit_rank(error: TrainerError | None = None) -> None:
    """Exit a rank after training without running its libraries' destructors. The destructors of a process group can
    deadlock with a thread that waits for them, and the run would never end. By now everything has been written; child
    processes end with the rank."""
    if environment.is_inside_launcher():
        if error is not None:
            report(str(error))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if error is None else error.exit_code)


def report(message: str) -> None:
    """Pass a rank's error to the launcher; do nothing in a single-process trainer."""
    if path := os.environ.get(_ERROR_FILE):
        Path(path).write_text(json.dumps({"message": message, "timestamp": int(time.time())}), encoding="utf-8")
