"""Assignment of rows to splits in two passes: one finds repeated prompts, the other yields the rows.

Rows are kept in an unnamed file in the version's folder, and take three bytes of memory each.
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
from controlplane.catalogue.datasets.reader.versions.splitting import Split, Strata, ValidationDraw
from workers.contract.run.dataset import TRAIN, VALIDATION

_PAIR = struct.Struct("<QQ")
_IN_VALIDATION, _REPEATED_PROMPT = 1, 2
"""Flags of a row: it is in the validation split, or an earlier row has the same prompt."""
_WITH_PREVIOUS = 2**16 - 1
"""Placeholder for the stratum of a row that goes into the same split as the previous one."""
_SPLITS = (TRAIN, VALIDATION)


class SplitSpill(Closing):
    """Store of rows that have no split yet: all are added first, and then read once. It uses unnamed temporary files in
    `folder`."""

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
        """Add a row from mapping.canonical, which may have extra fields. If `with_previous`, it goes into the previous
        row's split."""
        self._prompts.add(normalised_prompt(row["prompt"]), len(self._stratum))
        stratum = self._names.setdefault(self._strata.name(row["metadata"]), len(self._names))
        self._stratum.append(_WITH_PREVIOUS if with_previous else stratum)
        self._waiting.write(self._encode(row) + b"\n")

    def rows(self, split: Split, *, drop_duplicates: bool = False) -> Iterator[dict[str, Any]]:
        """Yield all rows in order with their "split"; with `drop_duplicates`, only the first row of each prompt."""
        flags = self._assign(split)
        self._waiting.seek(0)
        decode = msgspec.json.Decoder().decode
        for flag, line in zip(flags, self._waiting, strict=True):
            if not (flag & _REPEATED_PROMPT and drop_duplicates):
                yield {**decode(line), "split": _SPLITS[flag & _IN_VALIDATION]}

    def close(self) -> None:
        self._files.close()

    def _assign(self, split: Split) -> bytearray:
        names = list(self._names)
        flags = bytearray(len(self._stratum))
        counts = Counter(self._stratum)
        for row, first_row in self._prompts.repeats():
            self._pairs.write(_PAIR.pack(row, first_row))
            flags[row] = _REPEATED_PROMPT
            counts[self._stratum[row]] -= 1
        del counts[_WITH_PREVIOUS]
        draw = ValidationDraw({names[stratum]: count for stratum, count in counts.items()}, split)
        first_rows = self._originals()
        for row, stratum in enumerate(self._stratum):
            first_row = next(first_rows) if flags[row] else row
            if stratum == _WITH_PREVIOUS:
                flags[row] |= flags[row - 1] & _IN_VALIDATION
            elif first_row < row:
                flags[row] |= flags[first_row] & _IN_VALIDATION
            else:
                flags[row] |= draw.is_validation(names[stratum])
        return flags

    def _originals(self) -> Iterator[int]:
        """Yield, for each repeated row in order, the first row with the same prompt."""
        self._pairs.seek(0)
        while pair := self._pairs.read(_PAIR.size):
            yield _PAIR.unpack(pair)[1]
