"""The datasets' reader run in the test's own process: tests of pages need its answers, not its isolation."""

from __future__ import annotations

import gc
import io
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.catalogue.datasets import reader_process
from controlplane.catalogue.datasets.reader import __main__ as reader
from controlplane.catalogue.datasets.reader import limits

PIECE = 2**18


def install(patch: pytest.MonkeyPatch) -> None:
    """`ask`, `work` and `stream` with the reader's own program, without its process, limits and deadlines."""
    patch.setattr(reader_process, "ask", lambda folder, verb, given, **_: json.loads(_output(folder, verb, given)))
    patch.setattr(reader_process, "run", _work(reader_process.run))
    patch.setattr(reader_process, "stream", _stream)


def _work(real: Any) -> Any:
    def work(folder: Path, verb: str, given: Any, **options: Any) -> bytes:
        if options.get("program"):  # another program than the reader
            return real(folder, verb, given, **options)
        return _output(folder, verb, given)

    return work


def _stream(folder: Path, verb: str, given: Any) -> Iterator[bytes]:
    output = _output(folder, verb, given)
    for begin in range(0, len(output), PIECE):
        yield output[begin : begin + PIECE]


def _output(folder: Path, verb: str, given: Any) -> bytes:
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(given).encode())))
        patch.setattr(limits, "apply", lambda: None)
        patch.setattr(gc, "set_threshold", lambda *_: None)
        try:
            code = reader.main(["reader", str(folder), verb])
        except Exception:
            traceback.print_exc()
            code = 1
    reader_process._judge(code, errors.getvalue().encode(), f"{verb} in {folder.name}")
    output.flush()
    return output.buffer.getvalue()  # type: ignore[attr-defined]  # a BytesIO
