"""Resource limits that the child sets for itself before it opens uploaded data."""

import os
import resource
import signal
from types import FrameType

MEMORY_BYTES = 3 * 2**29
"""Address space limit of each process. Parquet's libraries map 0.3 GiB before reading anything."""
CPU_SECONDS = 3600
"""CPU time limit of each process. Twenty million short rows take about half of it on one core."""
CPU_GRACE_SECONDS = 60
"""Time in which a process that reaches its CPU limit can report that before it is killed."""
MAX_ROWS = 20_000_000
MAX_COLUMNS = 200
"""Maximum columns of a file, and of the canonical rows."""
MAX_OPEN_FILES = 64
MEMORY_EXCEEDED, TIME_EXCEEDED = 3, 4
"""Exit codes at the memory limit and at the CPU limit."""


class CpuTimeExceeded(Exception):
    """Signal that the process has reached its CPU limit."""


def apply() -> None:
    """Lower the soft and hard limits of this process permanently."""
    # Numpy reads this when it is imported. Its linear algebra, unused here, maps memory for each thread.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Pyarrow reads these when it is imported. Its own allocator maps 1 GiB at once, and its threads map a stack each,
    # which on many cores would leave no memory for the rows.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    signal.signal(signal.SIGXCPU, _raise_exceeded)
    for kind, limit, grace in (
        (resource.RLIMIT_AS, MEMORY_BYTES, 0),
        (resource.RLIMIT_CPU, CPU_SECONDS, CPU_GRACE_SECONDS),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        unlimited = hard == resource.RLIM_INFINITY
        soft = limit if unlimited else min(limit, hard)
        resource.setrlimit(kind, (soft, soft + grace if unlimited else min(soft + grace, hard)))


def _raise_exceeded(number: int, frame: FrameType | None) -> None:
    raise CpuTimeExceeded
