"""The child's progress in a small file, which is replaced at most twice a second and can be read at any time."""

import json
import os
import time
from pathlib import Path

from controlplane.catalogue.datasets.reader import files

INTERVAL_S = 0.5


class ProgressFile:
    """Progress of a stage. `file_size` (in bytes, compressed) and `row_count` are 0 if unknown."""

    def __init__(self, folder: Path, stage: str, file_size: int, row_count: int = 0) -> None:
        self._path = folder / files.PROGRESS
        self._stage = stage
        self._of = file_size
        self._of_rows = row_count
        self._started = time.monotonic()
        self._next_write = 0.0
        self.report(0, 0)

    def report(self, bytes_read: int, rows: int, *, force: bool = False) -> None:
        """Report the processed bytes and rows. Without `force`, the file is written at most once per INTERVAL_S."""
        now = time.monotonic()
        if now < self._next_write and not force:
            return
        self._next_write = now + INTERVAL_S
        elapsed = max(now - self._started, 1e-9)
        progress = {
            "stage": self._stage,
            "bytes": bytes_read,
            "of": self._of,
            "rows": rows,
            "of_rows": self._of_rows,
            "mb_per_s": round(bytes_read / 1e6 / elapsed, 1),
        }
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(progress))
        os.replace(draft, self._path)
