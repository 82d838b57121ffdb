"""Collector of problems, which counts them by kind, keeps the first ones, and writes all of them to a file."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from controlplane.catalogue.datasets.reader.files import Closing
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, MAX_REPORTED, DataProblem

MAX_UNREADABLE = 100_000
"""Limit on errors that no mapping can avoid; a pass stops there, since the file probably isn't a dataset."""
MAX_LISTED = 1_000_000
"""Maximum number of problems in the file of all problems, beyond which only errors that an import needs are added."""
QUOTA_PER_KIND = 200
"""Number of first problems of each kind that take precedence in a report, so that no kind crowds out the others."""
CODE_KINDS = frozenset(("code_syntax", "test_syntax", "latex_escapes"))
MAPPING_KINDS = CODE_KINDS | {
    *("missing_field", "empty_field", "wrong_type", "test_cases_type", "message_shape", "chat_roles"),
    *("marker_missing", "empty_answer", "transform", "images"),
}
"""Kinds of errors that another mapping may avoid. Any other error makes a row bad under every mapping."""


class Collector(Closing):
    """Collector of a pass's problems. Closing it (or leaving the `with`) puts the file of all problems in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_suffix(".part")
        self._file: BinaryIO = self._draft.open("wb")
        self._encode = msgspec.json.Encoder().encode
        self._first_of_kind: list[tuple[int, DataProblem]] = []
        """First problems of each kind, with their number within it."""
        self._others: list[DataProblem] = []
        self._listed = 0
        self._broken_errors = 0
        self._broken, self._unfit = _LineSet(), _LineSet()
        self.counts: Counter[str] = Counter()
        self.errors = 0

    def add(self, problem: DataProblem) -> None:
        self.counts[problem.kind] += 1
        if KINDS[problem.kind].level == ERROR:
            self.errors += 1
            (self._unfit if problem.kind in MAPPING_KINDS else self._broken).add(problem.line)
            self._broken_errors += problem.kind not in MAPPING_KINDS
        if self.counts[problem.kind] <= QUOTA_PER_KIND:
            self._first_of_kind.append((self.counts[problem.kind], problem))
        elif len(self._others) < MAX_REPORTED:
            self._others.append(problem)
        self._list(problem)

    @property
    def unfit_rows(self) -> int:
        """Number of rows that this mapping can't use but another one may."""
        return len(self._unfit) - self._unfit.count_common(self._broken)

    @property
    def gave_up(self) -> bool:
        return self._broken_errors >= MAX_UNREADABLE

    def as_dict(self) -> dict[str, Any]:
        """Return "kinds", "problems", "listed", "gave_up" and the number of "bad_rows", which are either "broken_rows"
        or "unfit_rows"."""
        # By their number within the kind, so that the limit leaves some of every kind, however many kinds there are.
        first = [problem for _, problem in sorted(self._first_of_kind, key=lambda numbered: numbered[0])]
        problems = sorted((first + self._others)[:MAX_REPORTED], key=lambda problem: problem.line)
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
        if self._listed >= MAX_LISTED:
            if KINDS[problem.kind].level != ERROR or problem.kind in MAPPING_KINDS - CODE_KINDS:
                return  # an import detects rows that don't fit its mapping
            problem = replace(problem, excerpt="")
        self._listed += 1
        self._file.write(self._encode(problem) + b"\n")

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._draft.replace(self._path)


class _LineSet:
    """Set of line numbers; 0, the file as a whole, isn't stored. A line takes a bit: ten million take 1.25 MB."""

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

    def count_common(self, lines: "_LineSet") -> int:
        pairs = ((piece, lines._pieces[key]) for key, piece in self._pieces.items() if key in lines._pieces)
        return sum((int.from_bytes(other, "big") & int.from_bytes(piece, "big")).bit_count() for other, piece in pairs)
