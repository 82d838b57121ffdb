"""The catalogue of failures against its fixtures, and the time that a large log takes.

`provoked` are the fixtures whose error a real program wrote; `right_first_percent` is the share of all fixtures, each
as it is and in the styles of other programs, for which the right cause comes first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.workers.diagnosis.cases import CASES, STYLES, Case, styled
from workers.diagnosis.catalogue import Confidence, entries
from workers.diagnosis.folder import diagnose

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
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        tried = [(case, style, _first(Path(folder), case, style)) for case in CASES for style in ("", *STYLES)]
        seconds = _large(Path(folder) / "trainer.log", options.mib)
    right = [first == case.expect for case, _, (first, _) in tried]
    wrong = [(case, style, first) for case, style, (first, sure) in tried if sure and first != case.expect]
    return {
        "entries": len(entries()),
        "fixtures": len(CASES),
        "provoked": sum(case.origin == "provoked" for case in CASES),
        "right_first_percent": round(100 * sum(right) / len(right), 1),
        "wrong_and_certain": len(wrong),
        "ms_per_100mb_log": round(1000 * seconds * MEBIBYTES / options.mib),
        "offenders": {"wrong_and_certain": [f"{case.name} ({style}): {first}" for case, style, first in wrong]},
    }


def _first(folder: Path, case: Case, style: str) -> tuple[str, bool]:
    """The first cause, and whether it is called certain."""
    log = folder / f"{case.role or 'mailed'}.log"
    log.write_text(styled(case.text, style) if style else case.text, encoding="utf-8")
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
