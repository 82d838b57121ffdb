"""Rows that have to be gone through twice: once to know which prompts come again, once to say what becomes of each.

Bounded memory: rows wait in an unnamed file beside the version, and of each three bytes are kept.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from controlplane.datasets.reader.canonical import TRAIN, VALIDATION
from controlplane.datasets.reader.duplicates import Duplicates
from controlplane.datasets.reader.mapping import normalised_prompt
from controlplane.datasets.reader.splitting import Drawing, Split, Strata

_PAIR = struct.Struct("<QQ")
_TRAINS, _VALIDATES, _REPEATS = range(3)
_SPLITS = (TRAIN, VALIDATION)


class Parting:
    """`add` every row, then `rows` once. Temporary files are unnamed ones in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._files = ExitStack()
        self._waiting = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  `close` closes it
        self._pairs = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._files.callback(self._waiting.close)
        self._files.callback(self._pairs.close)
        self._prompts = self._files.enter_context(Duplicates(folder))
        self._whole = self._files.enter_context(Duplicates(folder))
        self._strata, self._names = Strata(), dict[str, int]()
        self._stratum = array("H")
        self._encode = msgspec.json.Encoder().encode
        self.repeated = 0
        """Rows whose prompt an earlier row has; known once `rows` has begun."""
        self.repeated_alike = 0
        """Rows that also have the same answer."""

    def __len__(self) -> int:
        return len(self._stratum)

    def add(self, row: Mapping[str, Any]) -> None:
        """A row as mapping.canonical makes it; what else is in it comes back with it."""
        place = len(self._stratum)
        prompt = normalised_prompt(row["prompt"])
        self._prompts.add(prompt, place)
        self._whole.add(f"{prompt}\0{row['answer']}", place)
        self._stratum.append(self._names.setdefault(self._strata.of(row["metadata"]), len(self._names)))
        self._waiting.write(self._encode(row) + b"\n")

    def rows(self, split: Split, *, drop_duplicates: bool = False) -> Iterator[dict[str, Any]]:
        """All rows in order, each with its "split"; of those with the same prompt only the first, if so asked."""
        becomes = self._draw(split)
        self._pairs.seek(0)
        while pair := self._pairs.read(_PAIR.size):
            place, first = _PAIR.unpack(pair)
            becomes[place] = _REPEATS if drop_duplicates else becomes[first]
        self._waiting.seek(0)
        decode = msgspec.json.Decoder().decode
        for what, line in zip(becomes, self._waiting, strict=True):
            if what != _REPEATS:
                yield {**decode(line), "split": _SPLITS[what]}

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Parting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _draw(self, split: Split) -> bytearray:
        """The destination of each row, with repetitions still marked as such; `_pairs` has their originals."""
        names = list(self._names)
        becomes = bytearray(len(self._stratum))
        counts = Counter(self._stratum)
        for place, first in self._prompts.found():
            self._pairs.write(_PAIR.pack(place, first))
            becomes[place] = _REPEATS
            counts[self._stratum[place]] -= 1
            self.repeated += 1
        self.repeated_alike = sum(1 for _ in self._whole.found())
        drawing = Drawing({names[number]: count for number, count in counts.items()}, split)
        for place, number in enumerate(self._stratum):
            if becomes[place] != _REPEATS and drawing.is_validation(names[number]):
                becomes[place] = _VALIDATES
        return becomes
