"""The child's resource limits, set by itself before it opens uploaded data."""

from __future__ import annotations

import os
import resource

MEMORY_BYTES = 3 * 2**29
"""Address space of each process, in bytes. Parquet's libraries map 0.3 GiB before reading anything."""
CPU_SECONDS = 3600
MOST_ROWS = 20_000_000
OPEN_FILES = 64
TOO_MUCH = 3
"""Exit code: a limit was reached."""


def apply() -> None:
    """Lower the soft and the hard limits, permanently for this process."""
    # Read when numpy is imported. Its linear algebra, unused here, maps memory for each of its threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Read when pyarrow is imported. Its own allocator maps 1 GiB at once, and each thread a stack: on a host with many
    # cores nothing would be left for the rows.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        lowered = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (lowered, lowered))
