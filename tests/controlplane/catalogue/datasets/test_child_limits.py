"""What the reading child needs for itself leaves room for the rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from controlplane.catalogue.datasets.reader.limits import TIME_EXCEEDED
from controlplane.setup.serving.processes import BASE_DIR

READ = """
import io
import os
from controlplane.catalogue.datasets.reader import limits
limits.apply()
import pyarrow as pa
import pyarrow.parquet as pq
file = io.BytesIO()
pq.write_table(pa.table({f"column {n}": [str(n)] * 50_000 for n in range(32)}), file)
assert pq.read_table(file).num_rows == 50_000
mapped = next(line for line in open("/proc/self/status") if line.startswith("VmPeak"))
print(int(mapped.split()[1]) * 1024 / limits.MEMORY_BYTES, flush=True)
os._exit(0)
"""
"""It ends as the child does."""
SPIN = """
import sys
from controlplane.catalogue.datasets.reader import __main__, limits
from controlplane.catalogue.datasets.reader.checking import processes
def spin(folder, arguments):
    def look(batch):
        while True:
            pass
    list(processes.map_batches(lambda: iter(range(4)), look, PROCESSES))
limits.CPU_SECONDS = 1
sys.modules["controlplane.catalogue.datasets.reader.spin"] = sys
sys.run = spin
__main__.VERBS["spin"] = ("spin", "run")
sys.exit(__main__.main(["reader", "/", "spin"]))
"""


def test_parquet_leaves_most_of_the_address_space_to_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own allocator would map 1 GiB of the 1.5 at once: exporting a few thousand rows failed by it."""
    for name in ("ARROW_DEFAULT_MEMORY_POOL", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", READ], cwd=BASE_DIR, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.6


@pytest.mark.parametrize("processes", [1, 2])
def test_a_child_whose_processor_time_is_up_ends_and_says_so(processes: int) -> None:
    code = SPIN.replace("PROCESSES", str(processes))
    done = subprocess.run([sys.executable, "-c", code], cwd=BASE_DIR, input="", capture_output=True, text=True)
    assert done.returncode == TIME_EXCEEDED, done.stderr
