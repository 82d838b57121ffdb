"""Assigns rows to splits in two passes: one to find repeated prompts, one to yield the rows.

Rows wait in an unnamed file beside the version, and take three bytes of memory each.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates
from controlplane.catalogue.datasets.reader.columns.mapping import normalised_prompt
from controlplane.catalogue.datasets.reader.files import Closing
from controlplane.catalogue.datasets.reader.versions.splitting import Drawing, Split, Strata
from workers.contract.run.dataset import TRAIN, VALIDATION

_PAIR = struct.Struct("<QQ")
_VALIDATES, _REPEATS = 1, 2
"""Flags of a row: it is in the validation split; an earlier row has the same prompt."""
_WITH_PREVIOUS = 2**16 - 1
"""Instead of a stratum: the row follows the previous one."""
_SPLITS = (TRAIN, VALIDATION)


class SplitSpill(Closing):
    """Takes every row by `add`, then yields them by `rows`, once. Temporary files in `folder` are unnamed."""

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
        """Number of rows that repeat an earlier prompt; known once `rows` has begun."""
        self.repeated_alike = 0
        """Number of repeated rows with the same answer."""

    def __len__(self) -> int:
        return len(self._stratum)

    def add(self, row: Mapping[str, Any], *, with_previous: bool = False) -> None:
        """Add a row from mapping.canonical; extra fields are returned with it. `with_previous`: it goes into the same
        split as the previous row."""
        place = len(self._stratum)
        prompt = normalised_prompt(row["prompt"])
        self._prompts.add(prompt, place)
        self._whole.add(f"{prompt}\0{row['answer']}", place)
        stratum = self._names.setdefault(self._strata.name(row["metadata"]), len(self._names))
        self._stratum.append(_WITH_PREVIOUS if with_previous else stratum)
        self._waiting.write(self._encode(row) + b"\n")

    def rows(self, split: Split, *, drop_duplicates: bool = False) -> Iterator[dict[str, Any]]:
        """All rows in order with their "split"; `drop_duplicates`: only the first row of each prompt."""
        flags = self._draw(split)
        self._waiting.seek(0)
        decode = msgspec.json.Decoder().decode
        for flag, line in zip(flags, self._waiting, strict=True):
            if not (flag & _REPEATS and drop_duplicates):
                yield {**decode(line), "split": _SPLITS[flag & _VALIDATES]}

    def close(self) -> None:
        self._files.close()

    def _draw(self, split: Split) -> bytearray:
        """The flags of each row."""
        names = list(self._names)
        flags = bytearray(len(self._stratum))
        counts = Counter(self._stratum)
        for place, first in self._prompts.repeats():
            self._pairs.write(_PAIR.pack(place, first))
            flags[place] = _REPEATS
            counts[self._stratum[place]] -= 1
            self.repeated += 1
        self.repeated_alike = sum(1 for _ in self._whole.repeats())
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
        """For each repeated row, in order, the first row with its prompt."""
        self._pairs.seek(0)
        while pair := self._pairs.read(_PAIR.size):
            yield _PAIR.unpack(pair)[1]
