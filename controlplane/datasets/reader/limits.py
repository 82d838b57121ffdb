"""What the child may use of the machine, set by itself before it opens anything that somebody uploaded."""

from __future__ import annotations

import os
import resource

MEMORY_BYTES = 3 * 2**29
"""Of address space, for each process. Parquet's libraries map 0.3 GiB before they read anything."""
CPU_SECONDS = 3600
OPEN_FILES = 64
TOO_MUCH = 3
"""Exit code: a limit was reached."""


def apply() -> None:
    """Lower the soft and the hard limit: nothing in this process can raise them again."""
    # Read when numpy is imported. Its linear algebra, which is not used here, maps memory for each of its threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Read when pyarrow is imported. Its own allocator maps 1 GiB at once, and each thread a stack: on a host of many
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
