"""The child's progress in a small file, which is replaced at most twice a second and can be read at any time."""

import json
import os
import time
from pathlib import Path

from controlplane.catalogue.datasets.reader import files

INTERVAL_S = 0.5


class ProgressFile:
    """Progress of a stage. `of` is the (compressed) file's size in bytes and `of_rows` its rows, each 0 if unknown."""

    def __init__(self, folder: Path, stage: str, of: int, of_rows: int = 0) -> None:
        self._path = folder / files.PROGRESS
        self._stage = stage
        self._of = of
        self._of_rows = of_rows
        self._started = time.monotonic()
        self._next_write = 0.0
        self.report(0, 0)

    def report(self, read: int, rows: int, *, now: bool = False) -> None:
        """Report the processed bytes and rows. Unless `now`, the file is written only once per INTERVAL_S."""
        current = time.monotonic()
        if current < self._next_write and not now:
            return
        self._next_write = current + INTERVAL_S
        elapsed = max(current - self._started, 1e-9)
        progress = {
            "stage": self._stage,
            "bytes": read,
            "of": self._of,
            "rows": rows,
            "of_rows": self._of_rows,
            "mb_per_s": round(read / 1e6 / elapsed, 1),
        }
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(progress))
        os.replace(draft, self._path)
