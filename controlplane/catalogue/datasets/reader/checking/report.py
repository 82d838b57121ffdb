"""The collector of problems: counts them by kind, keeps the first ones, and writes all of them to a file."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from controlplane.catalogue.datasets.reader.files import Closing
from controlplane.catalogue.datasets.reader.problems import ERROR, KEPT, KINDS, DataProblem

GIVE_UP_AFTER = 100_000
"""Errors of unreadable rows; a file with more probably isn't a dataset."""
LISTED = 1_000_000
"""Problems listed in the file; further ones, such as millions of duplicates, are only counted. Errors that an import
needs are always listed."""
KEPT_OF_A_KIND = 200
"""Problems kept per kind, so that none crowds out the others."""
OF_THE_CODE = frozenset(("code_syntax", "test_syntax"))
UNFIT = OF_THE_CODE | {
    *("missing_field", "empty_field", "wrong_type", "test_cases_type", "message_shape", "chat_roles"),
    *("marker_missing", "empty_answer", "transform"),
}
"""Errors under one mapping, which another mapping may avoid. Any other error makes a row bad under every mapping."""


class Collector(Closing):
    """The problems of a pass. Closing it (or leaving the `with`) puts the file of all problems in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_suffix(".part")
        self._file: BinaryIO = self._draft.open("wb")
        self._encode = msgspec.json.Encoder().encode
        self._first: list[DataProblem] = []
        self._later: list[DataProblem] = []
        self._listed = 0
        self._broken_errors = 0
        self._broken, self._unfit = _LineSet(), _LineSet()
        self.counts: Counter[str] = Counter()
        self.errors = 0

    def add(self, problem: DataProblem) -> None:
        self.counts[problem.kind] += 1
        if KINDS[problem.kind].level == ERROR:
            self.errors += 1
            (self._unfit if problem.kind in UNFIT else self._broken).add(problem.line)
            self._broken_errors += problem.kind not in UNFIT
        if self.counts[problem.kind] <= KEPT_OF_A_KIND:
            self._first.append(problem)
        elif len(self._later) < KEPT:
            self._later.append(problem)
        self._list(problem)

    @property
    def unfit_rows(self) -> int:
        """Number of rows that only this mapping can't use."""
        return len(self._unfit) - self._unfit.in_common(self._broken)

    @property
    def gave_up(self) -> bool:
        return self._broken_errors >= GIVE_UP_AFTER

    def as_dict(self) -> dict[str, Any]:
        """Report "kinds", "problems", "listed", "gave_up" and the rows with errors: "bad_rows", and of them the
        "broken_rows" and the "unfit_rows"."""
        problems = sorted((self._first + self._later)[:KEPT], key=lambda problem: problem.line)
        return {
            "kinds": [
                {"kind": name, "title": kind.title, "advice": kind.advice, "level": kind.level, "count": count}
                for name, kind in KINDS.items()
                if (count := self.counts[name])
            ],
            "problems": [problem.as_dict() for problem in problems],
            "listed": self._listed,
            "bad_rows": len(self._broken) + self.unfit_rows,
            "broken_rows": len(self._broken),
            "unfit_rows": self.unfit_rows,
            "gave_up": self.gave_up,
        }

    def _list(self, problem: DataProblem) -> None:
        if self._listed >= LISTED:
            if KINDS[problem.kind].level != ERROR or problem.kind in UNFIT - OF_THE_CODE:
                return  # an import detects rows that don't fit its mapping
            problem = replace(problem, excerpt="")
        self._listed += 1
        self._file.write(self._encode(problem) + b"\n")

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._draft.replace(self._path)


class _LineSet:
    """A set of lines other than 0 (the file as a whole): one bit each, so ten million take two megabytes."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, line: int) -> None:
        if not line:
            return
        piece = self._pieces.get(line >> 16)
        if piece is None:
            piece = self._pieces[line >> 16] = bytearray(2**13)
        index, bit = (line & 0xFFFF) >> 3, 1 << (line & 7)
        if not piece[index] & bit:
            piece[index] |= bit
            self._size += 1

    def in_common(self, lines: "_LineSet") -> int:
        pairs = ((piece, lines._pieces[at]) for at, piece in self._pieces.items() if at in lines._pieces)
        return sum((int.from_bytes(own, "big") & int.from_bytes(piece, "big")).bit_count() for own, piece in pairs)
