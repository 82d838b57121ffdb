"""Custom transforms: an admin's Python function, which receives a row of the file and runs only in the sandbox.

    def transform(row):
        return {"prompt": row["question"], "answer": row["answer"].split("####")[-1].strip()}

It returns the row that the mapping uses: `prompt` (a string or messages), optionally `answer` and `test_cases`; other
keys become metadata. If it returns None, the row is left out; if it raises an error, that is a problem of the row.
Where rows of the file are lists or strings, it receives those.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.columns.transforms import CUSTOM
from controlplane.catalogue.datasets.reader.excerpts import visible
from controlplane.catalogue.datasets.reader.files import Closing
from controlplane.catalogue.datasets.reader.parsing import contents
from controlplane.catalogue.datasets.reader.parsing.records import Record
from controlplane.catalogue.datasets.reader.problems import DataProblem, FileProblem
from workers.sandbox.outcomes import Backend, Job, Kind, Limits
from workers.sandbox.pool import Sandbox
from workers.sandbox.requirements.syntax import is_too_deep, parsed

NAME = "transform"
KINDS = FAILED, LEFT_OUT = "transform", "left_out"
"""Kinds of the function's problems: it failed on a row, or left the row out."""
MAX_CHARACTERS = 50_000
SECONDS = 30.0
"""Time limit for the rows of one batch, which are about 256 KiB of the file."""
EXAMPLE = '''def transform(row):
    """The row to train on, or None to leave it out."""
    return {"prompt": row["question"], "answer": row["answer"]}
'''
FASTER = "Change the function so that it ends for every row: try it on the rows of these lines."
_LIMITS = Limits(seconds=SECONDS, memory_mb=512, value_bytes=64 * 2**20)
_CALL = """

def __grpo_transform__(rows):
    answers = []
    for row in rows:
        try:
            answers.append((True, transform(row)))
        except Exception as error:
            at = error.__traceback__.tb_next
            line = f", at its line {at.tb_lineno}" if at else ""
            answers.append((False, f"{type(error).__name__}: {str(error)[:300]}{line}"))
    return answers
"""


def problem(source: str) -> str:
    """Explain why the source isn't a valid transform; return "" if it is. Nothing is executed."""
    if not source.strip():
        return f"Write a function {NAME}(row)."
    if len(source) > MAX_CHARACTERS or is_too_deep(source):
        return "The function is too long, or its brackets are nested too deeply."
    tree = parsed(source)
    if isinstance(tree, str):
        return f"{tree[0].upper()}{tree[1:]}."
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == NAME]
    if not functions or len(functions[-1].args.args) != 1:
        return f"Define a function {NAME}(row)."
    return ""


@contextmanager
def open_function(mapping: ColumnMapping | None, backend: str | None) -> "Iterator[RowFunction | None]":
    """Open a mapping's function for the block, or yield None if it has none. The caller of the reader has tested the
    sandbox's `backend`."""
    if mapping is None or mapping.transform != CUSTOM:
        yield None
        return
    with RowFunction(mapping.code, Backend(backend or "")) as function:
        yield function


class RowFunction(Closing):
    """Function that is applied to records. Each process that uses it opens its own sandbox for its first rows.

    Raises SandboxUnavailable if rows are transformed and `backend` doesn't work, and FileProblem if a batch of rows
    takes longer than SECONDS: the function hardly ends for the next batches.
    """

    def __init__(self, source: str, backend: Backend) -> None:
        self._source = source + _CALL
        self._backend = backend
        self._sandbox: Sandbox | None = None

    def __call__(self, records: Iterable[Record]) -> Iterator[Record]:
        records = list(records)
        results = iter(self._results([record for record in records if record.row is not None]))
        for record in records:
            yield record if record.row is None else _transformed(record, *next(results))

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()

    def _results(self, records: Sequence[Record]) -> list[tuple[bool, Any]]:
        """Return (True, the function's value) or (False, the error) for each row."""
        if not records:
            return []
        rows = [contents.as_given(record.row) if record.is_bare and record.row else record.row for record in records]
        if self._sandbox is None:
            self._sandbox = Sandbox(self._backend, parallel=1)
        [outcome] = self._sandbox.run([Job(self._source, "__grpo_transform__", (rows,))], _LIMITS)
        if outcome.kind is Kind.OK:
            return list(outcome.value)
        if outcome.kind is Kind.TIMEOUT:  # each pass over the file would wait for it again
            lines = " to ".join(f"{line:,}" for line in sorted({records[0].line, records[-1].line}))
            raise FileProblem(FAILED, f"{outcome.message} The transform was on the rows of line {lines}.", FASTER)
        return [(False, f"{outcome.message} (in one of {len(rows):,} rows)")] * len(rows)


def _transformed(record: Record, has_returned: bool, value: Any) -> Record:
    if has_returned and value is None:
        return _without_row(record, LEFT_OUT, "The transform left this row out.")
    if not has_returned:
        return _without_row(record, FAILED, visible(str(value)))
    try:
        row = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        message = f"The transform returned {type(value).__name__}, not a dict with names as keys and JSON values."
        return _without_row(record, FAILED, message)
    if issue := contents.problem(row):
        return _without_row(record, FAILED, f"In the row that the transform returned: {issue[1]}")
    return replace(record, row=row, raw=None, is_bare=False)


def _without_row(record: Record, kind: str, message: str) -> Record:
    return replace(record, row=None, problems=[*record.problems, DataProblem(record.line, kind, message)])
