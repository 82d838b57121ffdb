"""The assignment of rows to splits in two passes: one to find repeated prompts, one to yield the rows.

Rows wait in an unnamed file beside the version, and take three bytes of memory each.
"""

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
    """Rows that wait for their split: takes all by `add`, then yields them by `rows`, once. Temporary files in `folder`
    are unnamed."""

    def __init__(self, folder: Path) -> None:
        self._files = ExitStack()
        self._waiting = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  `close` closes it
        self._pairs = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._files.callback(self._waiting.close)
        self._files.callback(self._pairs.close)
        self._prompts = self._files.enter_context(Duplicates(folder))
        self._strata, self._names = Strata(), dict[str, int]()
        self._stratum = array("H")
        self._encode = msgspec.json.Encoder().encode

    def __len__(self) -> int:
        return len(self._stratum)

    def add(self, row: Mapping[str, Any], *, with_previous: bool = False) -> None:
        """Add a row from mapping.canonical; extra fields are returned with it. `with_previous`: it goes into the same
        split as the previous row."""
        self._prompts.add(normalised_prompt(row["prompt"]), len(self._stratum))
        stratum = self._names.setdefault(self._strata.name(row["metadata"]), len(self._names))
        self._stratum.append(_WITH_PREVIOUS if with_previous else stratum)
        self._waiting.write(self._encode(row) + b"\n")

    def rows(self, split: Split, *, drop_duplicates: bool = False) -> Iterator[dict[str, Any]]:
        """Yield all rows in order with their "split"; `drop_duplicates`: only the first row of each prompt."""
        flags = self._draw(split)
        self._waiting.seek(0)
        decode = msgspec.json.Decoder().decode
        for flag, line in zip(flags, self._waiting, strict=True):
            if not (flag & _REPEATS and drop_duplicates):
                yield {**decode(line), "split": _SPLITS[flag & _VALIDATES]}

    def close(self) -> None:
        self._files.close()

    def _draw(self, split: Split) -> bytearray:
        """Draw the splits, and return the flags of each row."""
        names = list(self._names)
        flags = bytearray(len(self._stratum))
        counts = Counter(self._stratum)
        for row, first in self._prompts.repeats():
            self._pairs.write(_PAIR.pack(row, first))
            flags[row] = _REPEATS
            counts[self._stratum[row]] -= 1
        del counts[_WITH_PREVIOUS]
        drawing = Drawing({names[number]: count for number, count in counts.items()}, split)
        firsts = self._originals()
        for row, number in enumerate(self._stratum):
            first = next(firsts) if flags[row] else row
            if number == _WITH_PREVIOUS:
                flags[row] |= flags[row - 1] & _VALIDATES
            elif first < row:
                flags[row] |= flags[first] & _VALIDATES
            else:
                flags[row] |= drawing.is_validation(names[number])
        return flags

    def _originals(self) -> Iterator[int]:
        """Yield, for each repeated row in order, the first row with its prompt."""
        self._pairs.seek(0)
        while pair := self._pairs.read(_PAIR.size):
            yield _PAIR.unpack(pair)[1]
