"""What checking a dataset costs, beside one bare orjson.loads a line of the same file, and how soon rows are shown.

The file: chat rows with an answer, difficulty and tags, 200 MB of JSON Lines; the answer of every fourth is a Python
function with tests. Both passes of the check are timed in this process, the first in turns with the bare loop, because
only so the two meet the same machine; the second with a tokenizer and a limit so low that the tokens of all prompts are
counted. Speeds are of processor time, all threads' together; `_wall` says what a clock showed, for the second pass in
the checking child, whose own peak memory is told too. Pages are of a version of five million rows, from the request to
the last byte of the answer of a real web process: `preview_ms` is the median of first pages, `preview_cold_ms` the very
first one.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson

from controlplane.datasets.reader import files, first_pass, formats, second_pass, shown
from controlplane.datasets.reader.progress_file import ProgressFile
from controlplane.datasets.reader.report import Collector
from tests.benchmarks import _chats
from tests.benchmarks._figures import percentile
from tests.stack import Stack

MB = 1_000_000
FIRST_PAGES = 40
PAGES = 200
TOKEN_LIMIT = 400
VERSION = """
from controlplane.datasets.models import Dataset, DatasetVersion
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
    parser.add_argument("--parts", default="passes,preview", help=f"some of {','.join(PARTS)}, with commas")
    parser.add_argument("--megabytes", type=int, default=200, help="of the file that is checked")
    parser.add_argument("--rounds", type=int, default=3, help="how often the first pass and orjson take turns")
    parser.add_argument("--shown", type=int, default=5_000_000, help="rows of the version that is looked at")
    parser.add_argument("--many", type=int, default=10_000_000, help="rows of the part `many`")
    parser.add_argument("--folder", default=None, help="where the files are made (default: as for all temporary ones)")
    return parser.parse_args(argv)


def _passes(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    source = folder / files.SOURCE
    rows = _chats.write(source, options.megabytes * MB)
    tokenizer = _chats.tokenizer(folder / "tokenizer")
    size = source.stat().st_size / MB
    bare: list[_Took] = []
    first: list[_Took] = []
    for _ in range(options.rounds):
        bare.append(_timed(lambda: _bare(source)))
        first.append(_timed(lambda: _first_pass(source)))
    second = _timed(lambda: _second_pass(source, tokenizer))
    peak, report, _ = _child(folder, {"tokenizer": str(tokenizer), "token_limit": TOKEN_LIMIT})
    return {
        "rows": rows,
        "megabytes": round(size, 1),
        "mb_per_s": _rate(size, first),
        "rows_per_s": round(rows / min(took.processor for took in first)),
        "mb_per_s_wall": round(size / min(took.wall for took in first), 1),
        "orjson_mb_per_s": _rate(size, bare),
        "ratio_to_orjson_loads": round(min(took.processor for took in bare) / min(took.processor for took in first), 3),
        "second_pass_mb_per_s": _rate(size, [second]),
        "second_pass_rows_per_s": round(rows / second.processor),
        "second_pass_mb_per_s_wall": report["passes"][1]["mb_per_s"],
        "peak_mb": peak,
        "problems": {kind["kind"]: kind["count"] for kind in report["kinds"]},
    }


def _preview(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    data = Path(tempfile.mkdtemp(prefix="gt-", dir=options.folder))  # short: there are sockets in it
    stack = Stack.start(data)
    try:
        made, address = stack.django(VERSION, rows=options.shown)
        _write_shown(Path(made), options.shown)
        with stack.client("viewer") as client:
            return {"shown_rows": shown.count(Path(made)), **_pages(client, f"{address}rows/", options.shown)}
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
    writer.close()


def _many(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with (folder / files.SOURCE).open("wb") as file:
        for start in range(0, options.many, 10_000):
            file.write(b"".join(TINY % number for number in range(start, min(start + 10_000, options.many))))
    peak, report, seconds = _child(folder, {})
    return {
        "many_rows": report["rows"],
        "many_peak_mb": peak,
        "many_seconds": round(seconds, 1),
        "many_first_pass_rows_per_s": report["passes"][0]["rows_per_s"],
        "many_second_pass_rows_per_s": report["passes"][1]["rows_per_s"],
        "many_file_error": report["file_error"],
    }


PARTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "passes": _passes,
    "preview": _preview,
    "many": _many,
}


class _Took:
    def __init__(self, processor: float, wall: float) -> None:
        self.processor = processor
        self.wall = wall


def _timed(work: Callable[[], Any]) -> _Took:
    gc.collect()
    processor, wall = time.process_time(), time.perf_counter()
    work()
    return _Took(time.process_time() - processor, time.perf_counter() - wall)


def _rate(size: float, took: list[_Took]) -> float:
    return round(size / min(one.processor for one in took), 1)


def _bare(source: Path) -> None:
    loads = orjson.loads
    with source.open("rb") as file:
        for line in file:
            loads(line)


def _first_pass(source: Path) -> None:
    with Collector(source.parent / files.PROBLEMS) as collector:
        progress = ProgressFile(source.parent, "first pass", source.stat().st_size)
        first_pass.run(source, formats.detect(source), None, collector, progress, first_pass.FirstPassResult())


def _second_pass(source: Path, tokenizer: Path) -> None:
    with Collector(source.parent / files.PROBLEMS) as collector:
        progress = ProgressFile(source.parent, "second pass", source.stat().st_size)
        args = (_chats.MAPPING, collector, tokenizer, TOKEN_LIMIT, progress)
        second_pass.run(source, formats.detect(source), *args)


def _child(folder: Path, given: dict[str, Any]) -> tuple[float, dict[str, Any], float]:
    """(peak MB of the process that checks the folder, its report, seconds)."""
    code = (
        "import os, sys\n"
        "from controlplane.datasets.reader.__main__ import main\n"
        "code = main(sys.argv)\n"
        "print(open('/proc/self/status').read(), file=sys.stderr, flush=True)\n"
        "os._exit(code)"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), "check"],
        input=json.dumps(given).encode(),
        capture_output=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    said = done.stderr.decode()
    peak = re.search(r"VmHWM:\s+(\d+) kB", said)
    if done.returncode or peak is None:
        raise RuntimeError(f"the check ended with {done.returncode}: {said[-2000:]}")
    return round(int(peak[1]) * 1024 / MB, 1), json.loads((folder / files.REPORT).read_bytes()), seconds
