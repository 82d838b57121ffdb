"""A file's batches among processes: results in order, whatever becomes of a process."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import processes
from controlplane.catalogue.datasets.reader.checking.processes import map_batches
from controlplane.catalogue.datasets.reader.parsing import jsonlines, records
from controlplane.catalogue.datasets.reader.problems import FileProblem
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.controlplane.catalogue.datasets.sources import jsonl, parquet, report


def ten() -> Iterator[int]:
    yield from range(10)


def broken_behind_five() -> Iterator[int]:
    yield from range(5)
    raise FileProblem("broken_gzip", "It ends there.")


@pytest.mark.parametrize("number", [1, 2, 3, 16])
def test_results_come_in_the_order_of_the_batches(number: int) -> None:
    assert list(map_batches(ten, lambda batch: batch * batch, number)) == [batch * batch for batch in range(10)]


@pytest.mark.parametrize("number", [1, 2, 3, 16])
def test_what_is_wrong_with_a_file_comes_behind_all_batches_before_it(number: int) -> None:
    results = map_batches(broken_behind_five, lambda batch: batch, number)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(FileProblem, match="It ends there") as raised:
        next(results)
    assert raised.value.kind == "broken_gzip"


@pytest.mark.parametrize("number", [1, 3])
def test_an_error_in_a_batch_comes_with_its_traceback(number: int) -> None:
    results = map_batches(ten, lambda batch: 1 // (batch - 3), number)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError) as raised:
        next(results)
    assert number == 1 or "in <lambda>" in raised.value.__notes__[0]


def test_a_process_that_is_killed_is_told_as_a_limit() -> None:
    results = map_batches(ten, lambda batch: os.kill(os.getpid(), signal.SIGKILL) if batch == 4 else batch, 3)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(MemoryError):
        next(results)


def test_nothing_is_left_of_the_processes_once_nobody_wants_more() -> None:
    results = map_batches(ten, lambda batch: os.getpid(), 3)
    pids = {next(results) for _ in range(3)}
    assert len(pids - {os.getpid()}) == 3
    results.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def in_a_reader(code: str) -> subprocess.CompletedProcess[str]:
    """It ends once all processes have: they share its output."""
    before = (
        "import os, signal, time\nfrom controlplane.catalogue.datasets.reader import limits\n"
        "from controlplane.catalogue.datasets.reader.checking import processes\n"
    )
    argv = [sys.executable, "-c", before + code]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.processes
def test_they_die_with_the_reader() -> None:
    look = "lambda batch: batch if batch < 2 else time.sleep(600)"
    done = in_a_reader(f"""
for result in processes.map_batches(lambda: iter(range(10)), {look}, 2):
    if result == 1:
        os.kill(os.getpid(), signal.SIGKILL)
""")
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")


@pytest.mark.processes
def test_they_have_the_limits_of_the_reader() -> None:
    done = in_a_reader("""
limits.apply()
try:
    list(processes.map_batches(lambda: iter(range(4)), lambda batch: bytearray(limits.MEMORY_BYTES), 2))
except MemoryError:
    print("limited")
""")
    assert (done.stdout, done.stderr) == ("limited\n", "")


def rows(number: int) -> list[dict[str, Any]]:
    """Some of them with code that is broken, a test that can't be judged, a prompt that is long or repeated."""
    prompt = f"Write the function number {number % 270} that adds two of its three arguments"
    answer = "def f(a, b)\n" if number % 7 == 0 else "def f(a, b):\n    return a + b\n"
    tests = ["assert f(1, 2) == 3", "assert Sum(1).all == 1" if number % 5 == 0 else "assert f(2, 2) == 4"]
    return [{"prompt": prompt + " and then some" * (number % 11), "answer": answer, "test_cases": tests}]


SOURCES = [row for number in range(300) for row in rows(number)]
LINES = jsonl(SOURCES[:140]) + b"\n \nbroken\n{}\n" + jsonl(SOURCES[140:])
FILES = {
    "lines": LINES,
    "gzip that ends early": gzip.compress(LINES * 8, 1)[:-500],
    "list": json.dumps(SOURCES).encode(),
    "table": b"prompt,answer\n" + b"".join(b'"%d, is it?",1\n' % number for number in range(600)) + b'"open,2\n',
    "parquet": parquet({"prompt": [f"{n}: so many?" for n in range(1200)], "answer": ["1"] * 1200}, row_group_size=700),
}


@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in FILES.items()])
def test_a_report_is_the_same_whatever_the_number_of_processes(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonlines, "BLOCK_BYTES", 2**12)
    monkeypatch.setattr(records, "BATCH_BYTES", 2**12)
    reports = []
    for number in (1, 2, 5):
        monkeypatch.setattr(processes, "useful_processes", lambda path, number=number: number)
        said = report(tmp_path, content)
        reports.append((said | {"passes": []}, (tmp_path / files.PROBLEMS).read_bytes()))
    assert reports[0][0]["rows"] >= 140
    assert reports[1:] == reports[:1] * 2


def test_small_files_start_no_process(tmp_path: Path) -> None:
    source = tmp_path / files.SOURCE
    source.write_bytes(b"{}\n")
    assert processes.useful_processes(source) == 1
    with source.open("wb") as file:
        file.truncate(2**30)
    assert processes.useful_processes(source) == min(len(os.sched_getaffinity(0)), processes.MAX_PROCESSES)
