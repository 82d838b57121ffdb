#!/usr/bin/env python3
"""The real supervisor, with other GPUs behind the one seam that reads them.

    supervisor_with_gpus.py GPUS.json FOLDER

GPUS.json is {"<index>": MiB in use}, read anew each time; a list in place of the object means that NVML hangs.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workers.supervisor import __main__
from workers.supervisor.processes import gpus
from workers.supervisor.processes.gpus import GpuReading

FILE = Path(sys.argv.pop(1))


def read() -> list[GpuReading]:
    used = json.loads(FILE.read_text())
    if isinstance(used, list):
        time.sleep(1000)
    return [GpuReading(int(i), f"GPU-{i}", "Fake", 81920, mib, 50, 300.0, 60, "1.0") for i, mib in used.items()]


gpus.read = read
sys.exit(__main__.main())
