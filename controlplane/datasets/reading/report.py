"""Problems as they are found: counted by kind, the first of them kept, all of them in a file a line each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from controlplane.datasets.reading.problems import ERROR, KEPT, KINDS, Problem

GIVE_UP_AFTER = 100_000
"""Errors; a file with more is of another kind, and the first ones say which."""
LISTED = 1_000_000
"""Warnings in the file beside the report: ten million duplicates are counted, not listed. Errors are listed all, since
an import leaves out what the file names."""
KEPT_OF_A_KIND = 200
"""Of the problems kept, so that one kind doesn't hide all others."""


class Collector:
    """Closing it (or leaving the `with`) puts the file of all problems in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_suffix(".part")
        self._file: BinaryIO = self._draft.open("wb")
        self._encode = msgspec.json.Encoder().encode
        self._first: list[Problem] = []
        self._later: list[Problem] = []
        self._listed = 0
        self._bad: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.errors = 0

    def add(self, problem: Problem) -> None:
        self.counts[problem.kind] += 1
        is_error = KINDS[problem.kind].level == ERROR
        if is_error:
            self.errors += 1
            if len(self._bad) < GIVE_UP_AFTER:
                self._bad.add(problem.line)
        if self.counts[problem.kind] <= KEPT_OF_A_KIND:
            self._first.append(problem)
        elif len(self._later) < KEPT:
            self._later.append(problem)
        if is_error or self._listed < LISTED:
            self._listed += 1
            self._file.write(self._encode(problem) + b"\n")

    @property
    def bad_rows(self) -> int:
        """Rows with at least one error."""
        return len(self._bad - {0})

    def is_bad(self, line: int) -> bool:
        return line in self._bad

    @property
    def gave_up(self) -> bool:
        return self.errors >= GIVE_UP_AFTER

    def as_dict(self) -> dict[str, Any]:
        """The report's "kinds", "problems", "listed", "bad_rows" and "gave_up"."""
        kept = sorted((self._first + self._later)[:KEPT], key=lambda problem: problem.line)
        return {
            "kinds": [
                {"kind": name, "title": kind.title, "advice": kind.advice, "level": kind.level, "count": count}
                for name, kind in KINDS.items()
                if (count := self.counts[name])
            ],
            "problems": [problem.as_dict() for problem in kept],
            "listed": self._listed,
            "bad_rows": self.bad_rows,
            "gave_up": self.gave_up,
        }

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._draft.replace(self._path)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
