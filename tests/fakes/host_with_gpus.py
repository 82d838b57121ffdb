#!/usr/bin/env python3
"""The real host side, with the GPUs of fake_gpus.py behind the one seam that reads them.

    celery -A tests.fakes.host_with_gpus worker ...        the host's worker: announces, launches, reaps
    host_with_gpus.py FOLDER                               the supervisor of an attempt

A run called `... #supervisor=gate` is not let past its reading of the GPUs before FOLDER/gate.supervisor exists; one
called `... #supervisor=sample_s:0.1` has a supervisor with that setting.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes import behaviour, fake_gpus
from workers.supervisor.processes import gpus
from workers.supervisor.processes.gpus import GpuReading

GPUS = fake_gpus.Gpus(Path(os.environ["FAKE_GPUS"]))
GATE: Path | None = None


def read() -> list[GpuReading]:
    while GATE is not None and not GATE.exists():
        time.sleep(0.02)
    return [
        GpuReading(index, f"GPU-{index}", "Fake", fake_gpus.MEMORY_MIB, mib, 50, 300.0, 60, "1.0")
        for index, mib in GPUS.used().items()
    ]


gpus.read = read

if __name__ == "__main__":
    from workers.supervisor import __main__

    folder = Path(sys.argv[1])
    told = behaviour.of("supervisor", "FAKE_SUPERVISOR", folder)
    if "gate" in told:
        GATE = folder / "gate.supervisor"
    os.environ.update({f"GRPO_{name.upper()}": value for name, value in told.items() if value})
    sys.exit(__main__.main())

from workers.host.celery import app  # noqa: E402  its tasks bind what reads the GPUs when they are imported

__all__ = ["app"]
