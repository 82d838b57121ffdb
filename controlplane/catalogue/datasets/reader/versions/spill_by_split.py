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

from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates
from controlplane.catalogue.datasets.reader.columns.mapping import normalised_prompt
from controlplane.catalogue.datasets.reader.versions.splitting import Drawing, Split, Strata
from workers.contract.run.dataset import TRAIN, VALIDATION

_PAIR = struct.Struct("<QQ")
_VALIDATES, _REPEATS = 1, 2
"""Flags of a row: its part of the split, and whether an earlier row has the same prompt."""
_WITH_PREVIOUS = 2**16 - 1
"""In place of a stratum: the row goes where the one before it goes."""
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

    def add(self, row: Mapping[str, Any], *, with_previous: bool = False) -> None:
        """A row as mapping.canonical makes it; what else is in it comes back with it. `with_previous`: it goes into the
        same part as the row before it."""
        place = len(self._stratum)
        prompt = normalised_prompt(row["prompt"])
        self._prompts.add(prompt, place)
        self._whole.add(f"{prompt}\0{row['answer']}", place)
        stratum = self._names.setdefault(self._strata.of(row["metadata"]), len(self._names))
        self._stratum.append(_WITH_PREVIOUS if with_previous else stratum)
        self._waiting.write(self._encode(row) + b"\n")

    def rows(self, split: Split, *, drop_duplicates: bool = False) -> Iterator[dict[str, Any]]:
        """All rows in order, each with its "split"; of those with the same prompt only the first, if so asked."""
        flags = self._draw(split)
        self._waiting.seek(0)
        decode = msgspec.json.Decoder().decode
        for flag, line in zip(flags, self._waiting, strict=True):
            if not (flag & _REPEATS and drop_duplicates):
                yield {**decode(line), "split": _SPLITS[flag & _VALIDATES]}

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Parting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _draw(self, split: Split) -> bytearray:
        """The flags of each row."""
        names = list(self._names)
        flags = bytearray(len(self._stratum))
        counts = Counter(self._stratum)
        for place, first in self._prompts.found():
            self._pairs.write(_PAIR.pack(place, first))
            flags[place] = _REPEATS
            counts[self._stratum[place]] -= 1
            self.repeated += 1
        self.repeated_alike = sum(1 for _ in self._whole.found())
        del counts[_WITH_PREVIOUS]
        drawing = Drawing({names[number]: count for number, count in counts.items()}, split)
        firsts = self._originals()
        for place, number in enumerate(self._stratum):
            first = next(firsts) if flags[place] else place
            if number == _WITH_PREVIOUS:
                flags[place] |= flags[place - 1] & _VALIDATES
            elif first < place:
                flags[place] |= flags[first] & _VALIDATES
            else:
                flags[place] |= drawing.is_validation(names[number])
        return flags

    def _originals(self) -> Iterator[int]:
        """The first row with the same prompt, of each repetition in order."""
        self._pairs.seek(0)
        while pair := self._pairs.read(_PAIR.size):
            yield _PAIR.unpack(pair)[1]
