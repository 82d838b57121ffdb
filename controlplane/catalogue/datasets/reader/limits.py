"""The child's resource limits, which it sets before it opens uploaded data."""

import os
import resource
import signal
from types import FrameType

MEMORY_BYTES = 3 * 2**29
"""Address space of each process, in bytes. Parquet's libraries map 0.3 GiB before reading anything."""
CPU_SECONDS = 3600
"""CPU time limit of each process. Twenty million short rows on one core take about half of it."""
CPU_GRACE = 60
"""Seconds for a process at its CPU limit to report that."""
MAX_ROWS = 20_000_000
MAX_COLUMNS = 200
"""Columns of a file, and of the canonical rows."""
OPEN_FILES = 64
TOO_MUCH, TOO_LONG = 3, 4
"""Exit codes at the memory limit and at the CPU limit."""


class TimeIsUp(Exception):
    """The CPU time is used up."""


def apply() -> None:
    """Lower the soft and the hard limits, permanently for this process."""
    # Read by numpy at its import. Its linear algebra, unused here, maps memory for each thread.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Read by pyarrow at its import. Its own allocator maps 1 GiB at once, and a stack per thread, which on many cores
    # would leave nothing for the rows.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    signal.signal(signal.SIGXCPU, _time_is_up)
    for kind, limit, grace in (
        (resource.RLIMIT_AS, MEMORY_BYTES, 0),
        (resource.RLIMIT_CPU, CPU_SECONDS, CPU_GRACE),
        (resource.RLIMIT_NOFILE, OPEN_FILES, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        unlimited = hard == resource.RLIM_INFINITY
        soft = limit if unlimited else min(limit, hard)
        resource.setrlimit(kind, (soft, soft + grace if unlimited else min(soft + grace, hard)))


def _time_is_up(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp
