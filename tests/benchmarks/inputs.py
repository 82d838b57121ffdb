"""Files in the formats that people bring, read as new uploads.

`right_first_percent` is the share for which the first proposal is right, or the problem is told; `silently_wrong`
counts those that are imported with another result than the right one and without any problem. `--folder` reads further
files and lists what is proposed for each.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import check_file
from tests.benchmarks._brought import CASES, tried


def main(argv: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench inputs")
    parser.add_argument("--folder", type=Path, help="a folder of further files, to list what is proposed for them")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "version"
        wrong = {case.name: difference for case in CASES if (difference := tried(folder, case))}
        silent = [name for name, difference in wrong.items() if not difference.startswith("no row")]
        given = sorted(path for path in options.folder.rglob("*") if path.is_file()) if options.folder else []
        proposals = [_proposal(Path(scratch) / "given", path) for path in given]
    return {
        "inputs": len(CASES),
        "right_first_percent": round(100 * (1 - len(wrong) / len(CASES)), 1),
        "silently_wrong": len(silent),
        "given": len(proposals),
        "offenders": {
            "right_first_percent": [f"{name}: {difference}" for name, difference in wrong.items()],
            "silently_wrong": silent,
            "given": proposals,
        },
    }


def _proposal(folder: Path, path: Path) -> str:
    folder.mkdir(exist_ok=True)
    (folder / files.SOURCE).write_bytes(path.read_bytes())
    report = check_file.run(folder, {})
    if report["file_error"]:
        return f"{path.name}: {report['file_error']['message']}"
    chosen = {name: value for name, value in report["recognised"]["mapping"].items() if value and value != "columns"}
    return f"{path.name}: {chosen}, {[kind['kind'] for kind in report['kinds']]}"
