"""What checking a dataset costs, and how soon its rows are shown.

The file: chat rows with an answer, difficulty and tags, 200 MB of JSON Lines; the answer of every fourth row is a
Python function with tests. `whole_check_mb_per_s` is the file's size over the seconds of the process that checks it,
from its start to its end, by the clock: rows, code, tests and repeated prompts. `whole_check_mb_per_processor_s` is the
same over the processor time of all its processes; `peak_mb` is its peak memory and that of each process it starts,
where pages that they share count again. Pages are of a version of five million rows, from the request to the last byte
of the answer of a real web process: `preview_ms` is the median of first pages, `preview_cold_ms` the very first one.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import processes
from controlplane.catalogue.datasets.reader.versions import shown
from tests.benchmarks import _chats
from tests.benchmarks._figures import percentile
from tests.stack import Stack

MB = 1_000_000
FIRST_PAGES = 40
PAGES = 200
VERSION = """
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
version = DatasetVersion.objects.create(
    dataset=Dataset.objects.create(name="bench"), number=1, status=DatasetVersion.READY, rows=rows, file_name="bench",
    report={"mapped": {"statistics": {"rows": rows, "difficulty": {"counts": [{"name": "easy", "count": rows}]}}}},
)
version.folder.mkdir(parents=True)
result = [str(version.folder), version.get_absolute_url()]
"""
TINY = b'{"question":"%d","answer":"1"}\n'


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="grpo-bench-datasets-", dir=options.folder))
    try:
        figures: dict[str, Any] = {}
        for part in options.parts.split(","):
            at = folder / part
            at.mkdir()
            figures |= PARTS[part](at, options)
            shutil.rmtree(at)
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench datasets", description=__doc__)
    parser.add_argument("--parts", default="check,preview", help=f"some of {','.join(PARTS)}, with commas")
    parser.add_argument("--megabytes", type=int, default=200, help="of the file that is checked")
    parser.add_argument("--rounds", type=int, default=3, help="how often the file is checked")
    parser.add_argument("--shown", type=int, default=5_000_000, help="rows of the version that is looked at")
    parser.add_argument("--many", type=int, default=10_000_000, help="rows of the part `many`")
    parser.add_argument("--folder", default=None, help="where the files are made (default: as for all temporary ones)")
    return parser.parse_args(argv)


def _check(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    source = folder / files.SOURCE
    rows = _chats.write(source, options.megabytes * MB)
    size = source.stat().st_size / MB
    checks = [_child(folder) for _ in range(options.rounds)]
    report = checks[-1].report
    return {
        "rows": rows,
        "megabytes": round(size, 1),
        "whole_check_mb_per_s": round(size / min(check.wall for check in checks), 2),
        "whole_check_mb_per_processor_s": round(size / min(check.processor for check in checks), 2),
        "whole_check_rows_per_s": round(rows / min(check.wall for check in checks)),
        "passes_mb_per_s": {one["name"]: one["mb_per_s"] for one in report["passes"]},
        "peak_mb": max(check.peak_mb for check in checks),
        "problems": {kind["kind"]: kind["count"] for kind in report["kinds"]},
    }


def _preview(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    data = Path(tempfile.mkdtemp(prefix="gt-", dir=options.folder))  # short: there are sockets in it
    stack = Stack.start(data)
    try:
        made, address = stack.django(VERSION, rows=options.shown)
        _write_shown(Path(made), options.shown)
        with stack.client("viewer") as client:
            return {"shown_rows": options.shown, **_pages(client, f"{address}rows/", options.shown)}
    finally:
        stack.stop()


def _pages(client: httpx.Client, address: str, rows: int) -> dict[str, float]:
    def asked(after: int = 0) -> float:
        began = time.perf_counter()
        answer = client.get(address, params={"after": after} if after else {})
        took = (time.perf_counter() - began) * 1000
        if f"What is {after} plus {after}?" not in answer.text:
            raise RuntimeError(
                f"the page of row {after} does not show it ({answer.status_code}):\n{answer.text[:4000]}"
            )
        return took

    cold, first, chance = asked(), [asked() for _ in range(FIRST_PAGES)], random.Random(1)
    later = [asked(chance.randrange(rows)) for _ in range(PAGES)]
    return {
        "preview_ms": round(percentile(first, 0.5), 1),
        "preview_cold_ms": round(cold, 1),
        "preview_any_page_p99_ms": round(percentile(later, 0.99), 1),
    }


def _write_shown(folder: Path, rows: int) -> None:
    writer = shown.ShortRowWriter(folder)
    for number in range(rows):
        writer.add(
            {
                "row_id": number,
                "prompt": [{"role": "user", "content": f"What is {number} plus {number}?"}],
                "answer": str(2 * number),
                "test_cases": [],
                "metadata": {"difficulty": "easy"},
                "split": "train",
            }
        )
    writer.finish()


def _many(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with (folder / files.SOURCE).open("wb") as file:
        for start in range(0, options.many, 10_000):
            file.write(b"".join(TINY % number for number in range(start, min(start + 10_000, options.many))))
    check = _child(folder)
    report = check.report
    return {
        "many_rows": report["rows"],
        "many_peak_mb": check.peak_mb,
        "many_seconds": round(check.wall, 1),
        "many_first_pass_rows_per_s": report["passes"][0]["rows_per_s"],
        "many_second_pass_rows_per_s": report["passes"][1]["rows_per_s"],
        "many_file_error": report["file_error"],
    }


PARTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "check": _check,
    "preview": _preview,
    "many": _many,
}


@dataclass(frozen=True)
class _Check:
    """One run of the process that checks a folder."""

    report: dict[str, Any]
    wall: float
    processor: float
    """Seconds of all its processes."""
    peak_mb: float


def _child(folder: Path) -> _Check:
    code = (
        "import os, resource, sys\n"
        "from controlplane.catalogue.datasets.reader.__main__ import main\n"
        "code = main(sys.argv)\n"
        "largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
        "print(open('/proc/self/status').read(), f'largest child: {largest} kB', file=sys.stderr, flush=True)\n"
        "os._exit(code)"
    )
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), "check"],
        input=b"{}",
        capture_output=True,
        check=False,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    errors = done.stderr.decode()
    peaks = re.search(r"VmHWM:\s+(\d+) kB.*largest child: (\d+) kB", errors, re.DOTALL)
    if done.returncode or peaks is None:
        raise RuntimeError(f"the check ended with {done.returncode}: {errors[-2000:]}")
    count = processes.useful_processes(folder / files.SOURCE)
    return _Check(
        report=json.loads((folder / files.REPORT).read_bytes()),
        wall=wall,
        processor=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        peak_mb=round((int(peaks[1]) + count * int(peaks[2])) * 1024 / MB, 1),
    )
