"""Source files as people upload them, and what the check says of one."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import check_file
from controlplane.catalogue.datasets.reader.parsing import formats, records

GOOD = b'{"question": "a", "answer": "b"}\n'


def report(folder: Path, content: bytes, **arguments: Any) -> dict[str, Any]:
    """The check's report of a file with this content."""
    (folder / files.SOURCE).write_bytes(content)
    return check_file.run(folder, arguments)


def found(said: dict[str, Any]) -> list[tuple[int, str]]:
    """(line, kind) of each problem."""
    return [(problem["line"], problem["kind"]) for problem in said["problems"]]


def rows(folder: Path, content: bytes) -> list[Any]:
    """The rows of a file with this content; None for one that can't be read."""
    source = folder / files.SOURCE
    source.write_bytes(content)
    return [record.row for record in records.RowSource(source, formats.detect(source)).read()]


def jsonl(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(columns: Any, **options: Any) -> bytes:
    import pyarrow
    from pyarrow import parquet as pq

    out = io.BytesIO()
    table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
    pq.write_table(table, out, **options)
    return out.getvalue()


@dataclass
class Child:
    """How the process that checks a file ended, and what it took."""

    code: int
    report: dict[str, Any] | None
    peak_mb: float
    cpu_s: float
    errors: str
    pyarrow: bool
    """Whether it was loaded."""


def in_a_child(folder: Path, verb: str = "check", arguments: Any = None) -> Child:
    # The child reads its own peak: rusage counts what the forked test process held before exec.
    code = (
        "import os, sys, traceback\n"
        "from controlplane.catalogue.datasets.reader.__main__ import main\n"
        "try:\n"
        "    code = main(sys.argv)\n"
        "except Exception:\n"
        "    traceback.print_exc()\n"
        "    code = 1\n"
        "said = open('/proc/self/status').read() + f'pyarrow {\"pyarrow\" in sys.modules}'\n"
        "print(said, file=sys.stderr, flush=True)\n"
        "os._exit(code)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), verb],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(json.dumps(arguments or {}).encode())
        child.stdin.close()
        errors = child.stderr.read().decode()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    path = folder / files.REPORT
    peak = re.search(r"VmHWM:\s+(\d+) kB", errors)
    return Child(
        child.returncode,
        json.loads(path.read_text()) if path.exists() else None,
        int(peak[1]) / 1024 if peak else 0.0,
        used.ru_utime + used.ru_stime,
        errors,
        "pyarrow True" in errors,
    )
