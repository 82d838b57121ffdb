"""Several ranks: the same command under torchrun, with the exit code and last words of the rank that failed first."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Set by torchrun for each rank: what is written there reaches the launcher."""


def launch(folder: Path, processes: int) -> int:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    # Ranks meet on loopback, on a port that the system picks.
    arguments = ["--nnodes=1", f"--nproc-per-node={processes}", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    arguments += ["--local-addr=127.0.0.1", "-m", "workers.trainer", str(folder)]
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    try:
        run(parse_args(arguments))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(failure.message or f"Rank {rank} ended with {failure.exitcode}.", file=sys.stderr, flush=True)
        code = int(failure.exitcode)
        return code if code >= 0 else 128 - code  # -9: ended by signal 9
    return 0


def report(sentence: str) -> None:
    """Hand a rank's last words to the launcher; nothing to do in a trainer of one process."""
    if path := os.environ.get(_ERROR_FILE):
        Path(path).write_text(json.dumps({"message": sentence, "timestamp": int(time.time())}), encoding="utf-8")
