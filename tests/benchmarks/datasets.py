"""What checking a dataset costs, beside one bare orjson.loads a line of the same file, and how soon rows are shown.

The file: chat rows with an answer, difficulty and tags, 200 MB of JSON Lines. Both passes of the check are timed; the
first one also in this process, in turns with the bare loop, because only so the two meet the same machine. Speeds next
to each other are of processor time; `_wall` says what a clock showed. Peak memory is the checking child's own. The page
that is shown first is of a version of five million rows.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
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

import orjson

from controlplane.datasets.reading import files, first_pass, formats, shown
from controlplane.datasets.reading.progress import Progress
from controlplane.datasets.reading.report import Collector
from tests.benchmarks._figures import percentile

MB = 1_000_000
WORDS = 5000
PAGE = 50
PAGES = 200
TINY = b'{"question":"%d","answer":"1"}\n'


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
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
    rows = _write_chats(source, options.megabytes * MB)
    size = source.stat().st_size / MB
    bare: list[_Took] = []
    first: list[_Took] = []
    for _ in range(options.rounds):
        bare.append(_timed(lambda: _bare(source)))
        first.append(_timed(lambda: _first_pass(source)))
    peak, report, _ = _child(folder)
    second = report["passes"][1]
    return {
        "rows": rows,
        "megabytes": round(size, 1),
        "mb_per_s": _rate(size, first),
        "rows_per_s": round(rows / min(took.processor for took in first)),
        "mb_per_s_wall": round(size / min(took.wall for took in first), 1),
        "orjson_mb_per_s": _rate(size, bare),
        "ratio_to_orjson_loads": round(min(took.processor for took in bare) / min(took.processor for took in first), 3),
        "second_pass_mb_per_s": second["mb_per_s"],
        "second_pass_rows_per_s": second["rows_per_s"],
        "peak_mb": peak,
        "problems": sum(kind["count"] for kind in report["kinds"]),
    }


def _preview(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    writer = shown.Writer(folder)
    for number in range(options.shown):
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
    first = _milliseconds(lambda: shown.page(folder, 0, PAGE))
    chance = random.Random(1)
    later = [
        _milliseconds(lambda at=at: shown.page(folder, at, PAGE))  # type: ignore[misc]
        for at in (chance.randrange(options.shown) for _ in range(PAGES))
    ]
    return {
        "shown_rows": shown.count(folder),
        "preview_ms": round(first, 2),
        "preview_any_page_p99_ms": round(percentile(later, 0.99), 2),
    }


def _many(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with (folder / files.SOURCE).open("wb") as file:
        for start in range(0, options.many, 10_000):
            file.write(b"".join(TINY % number for number in range(start, min(start + 10_000, options.many))))
    peak, report, seconds = _child(folder)
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


def _milliseconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _rate(size: float, took: list[_Took]) -> float:
    return round(size / min(one.processor for one in took), 1)


def _bare(source: Path) -> None:
    loads = orjson.loads
    with source.open("rb") as file:
        for line in file:
            loads(line)


def _first_pass(source: Path) -> None:
    found = first_pass.Found()
    with Collector(source.parent / files.PROBLEMS) as collector:
        progress = Progress(source.parent, "first pass", source.stat().st_size)
        first_pass.run(source, formats.detect(source), None, collector, progress, found)


def _child(folder: Path) -> tuple[float, dict[str, Any], float]:
    """(peak MB of the process that checks the folder, its report, seconds)."""
    code = (
        "import atexit, runpy, sys\n"
        "atexit.register(lambda: sys.stderr.write(open('/proc/self/status').read()))\n"
        "runpy.run_module('controlplane.datasets.reading', run_name='__main__', alter_sys=True)"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), "check"], input=b"{}", capture_output=True, check=False
    )
    seconds = time.perf_counter() - began
    said = done.stderr.decode()
    peak = re.search(r"VmHWM:\s+(\d+) kB", said)
    if done.returncode or peak is None:
        raise RuntimeError(f"the check ended with {done.returncode}: {said[-2000:]}")
    return round(int(peak[1]) * 1024 / MB, 1), json.loads((folder / files.REPORT).read_bytes()), seconds


def _write_chats(path: Path, size: int) -> int:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(WORDS)]
    written = rows = 0
    with path.open("wb", buffering=io.DEFAULT_BUFFER_SIZE * 64) as file:
        while written < size:
            written += file.write(_chat(chance, words, rows))
            rows += 1
        file.flush()
        os.fsync(file.fileno())
    return rows


def _chat(chance: random.Random, words: list[str], number: int) -> bytes:
    asked = " ".join(chance.choices(words, k=chance.randint(40, 120)))
    row = {
        "prompt": [
            {"role": "system", "content": "You are a careful assistant.\nThink before you answer."},
            {"role": "user", "content": f"{number}: {asked}"},
        ],
        "answer": " ".join(chance.choices(words, k=chance.randint(5, 40))),
        "difficulty": chance.choice(("easy", "medium", "hard")),
        "tags": ["reading", "writing"],
    }
    return json.dumps(row).encode() + b"\n"
