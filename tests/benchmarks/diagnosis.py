"""The catalogue of failures against its fixtures, and the time that a large log takes.

`provoked` are the fixtures whose error a real program wrote; `right_first_percent` is the share of all fixtures, each
as it is and in each noise of real logs, for which the right cause comes first; `healthy_with_a_cause` are the logs of
runs that work, though they speak of errors, for which a cause is named; `innocent_with_a_cause` the single lines of
warnings, handled errors and models' texts that are taken for one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.workers.diagnosis.cases import CASES, NOISES, Case, healthy, innocent
from workers.diagnosis.catalogue import Confidence, entries
from workers.diagnosis.folder import diagnose
from workers.diagnosis.matching import UNEXPLAINED_ID

MEBIBYTES = 100
HEALTHY = (
    "{{'loss': {n:.4f}, 'grad_norm': 0.51, 'learning_rate': 1e-06, 'num_tokens': {n}.0, 'rewards/right/mean': 0.4, "
    "'rewards/right/failed': 0, 'reward': 0.41, 'reward_std': 0.2, 'completions/mean_length': 210.2, 'kl': 0.01}}\n"
    "(APIServer pid=71) INFO 11-23 10:11:12 [loggers.py:236] Engine 000: Avg prompt throughput: {n}.1 tokens/s, Avg "
    "generation throughput: 1210.5 tokens/s, Running: 16 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%\n"
    "/site/transformers/utils.py:{n}: UserWarning: something that is not an error is deprecated\n"
)
"""What a healthy run writes."""


def main(argv: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench diagnosis")
    parser.add_argument("--mib", type=int, default=MEBIBYTES, help="size of the large log")
    parser.add_argument(
        "--noises", type=int, default=len(NOISES), help="how many noises each log is tried in; they take turns"
    )
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        tried = [(case, noise, _first(Path(folder), case, noise)) for case, noise in _in_noises(options.noises)]
        well = {name: Case(name, "", "written", "", text) for name, text in healthy().items()}
        alarmed = {name: first for name, case in well.items() if (first := _first(Path(folder), case, "")[0])}
        lines = {line: Case("", "", "written", "", f"{line}\n") for line in innocent()}
        blamed = {line: _first(Path(folder), case, "")[0] for line, case in lines.items()}
        blamed = {line: first for line, first in blamed.items() if first not in ("", UNEXPLAINED_ID)}
        seconds = _large(Path(folder) / "trainer.log", options.mib)
    right = [first == case.expect for case, _, (first, _) in tried]
    wrong = [(case, noise, first) for case, noise, (first, sure) in tried if sure and first != case.expect]
    missed = [(case, noise, first) for case, noise, (first, _) in tried if first != case.expect]
    return {
        "entries": len(entries()),
        "fixtures": len(CASES),
        "noises": len(NOISES),
        "provoked": sum(case.origin == "provoked" for case in CASES),
        "right_first_percent": round(100 * sum(right) / len(right), 1),
        "nothing_percent": round(100 * sum(not first for _, _, first in missed) / len(tried), 1),
        "wrong_and_certain": len(wrong),
        "healthy": len(well),
        "healthy_with_a_cause": len(alarmed),
        "innocent_lines": len(lines),
        "innocent_with_a_cause": len(blamed),
        "ms_per_100mb_log": round(1000 * seconds * MEBIBYTES / options.mib),
        "offenders": {
            "wrong_and_certain": [f"{case.name} ({noise}): {first}" for case, noise, first in wrong],
            "right_first_percent": [f"{case.name} ({noise}): {first}" for case, noise, first in missed],
            "healthy_with_a_cause": [f"{name}: {first}" for name, first in alarmed.items()],
            "innocent_with_a_cause": [f"{line}: {first}" for line, first in blamed.items()],
        },
    }


def _in_noises(count: int) -> Iterator[tuple[Case, str]]:
    turns = cycle(NOISES)
    return ((case, noise) for case in CASES for noise in ("", *islice(turns, count)))


def _first(folder: Path, case: Case, noise: str) -> tuple[str, bool]:
    """The first cause, and whether it is called certain."""
    log = folder / f"{case.role or 'mailed'}.log"
    log.write_text(NOISES[noise](case.text) if noise else case.text, encoding="utf-8")
    diagnoses = diagnose(log).diagnoses
    return (diagnoses[0].id, diagnoses[0].confidence is Confidence.CERTAIN) if diagnoses else ("", False)


def _large(path: Path, mebibytes: int) -> float:
    """Seconds for a healthy log of this size that ends in an error."""
    with path.open("w", encoding="utf-8") as file:
        n = 0
        while file.tell() < mebibytes << 20:
            file.writelines(HEALTHY.format(n=number) for number in range(n, n + 1000))
            n += 1000
        file.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    started = time.perf_counter()
    report = diagnose(path)
    seconds = time.perf_counter() - started
    if [one.id for one in report.diagnoses] != ["gpu_memory"]:
        raise RuntimeError(f"the large log's cause was not found: {report}")
    return seconds
