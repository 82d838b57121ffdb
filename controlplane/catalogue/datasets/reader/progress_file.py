"""The child's progress in a small file, replaced at most twice a second, which pages may read at any time."""

import json
import os
import time
from pathlib import Path

from controlplane.catalogue.datasets.reader import files

EVERY_S = 0.5


class ProgressFile:
    """Progress of a stage. `of`: bytes of the (compressed) file to process, `of_rows`: its rows; 0: unknown."""

    def __init__(self, folder: Path, stage: str, of: int, of_rows: int = 0) -> None:
        self._path = folder / files.PROGRESS
        self._stage = stage
        self._of = of
        self._of_rows = of_rows
        self._began = time.monotonic()
        self._next = 0.0
        self.at(0, 0)

    def at(self, read: int, rows: int, *, now: bool = False) -> None:
        """Report `read` bytes and `rows` rows. Cheap enough for every block; `now` writes at once."""
        at = time.monotonic()
        if at < self._next and not now:
            return
        self._next = at + EVERY_S
        spent = max(at - self._began, 1e-9)
        progress = {
            "stage": self._stage,
            "bytes": read,
            "of": self._of,
            "rows": rows,
            "of_rows": self._of_rows,
            "mb_per_s": round(read / 1e6 / spent, 1),
        }
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(progress))
        os.replace(draft, self._path)
