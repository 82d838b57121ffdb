"""Names of files in a version's folder. Files are first written under temporary names, so these are complete."""

import hashlib
import os
from pathlib import Path
from typing import Any, Self

import msgspec

SOURCE = "source"
"""The uploaded or fetched file, unmodified, in any format."""
REPORT = "report.json"
"""The results of `check`."""
PROBLEMS = "problems.jsonl"
"""All problems of the check, one problems.DataProblem per line."""
MAPPED_FILE = "mapped.json"
"""The results of `import`."""
MAPPED_PROBLEMS = "mapped_problems.jsonl"
PROGRESS = "progress.json"
"""The progress, which is replaced at most twice a second: {"stage": str, "bytes": int, "of": int, "rows": int,
"of_rows": int, "mb_per_s": float}."""
ROWS = "rows.parquet"
"""The canonical rows (canonical.SCHEMA) for the trainer, identified by their sha256."""
DOCUMENTS = "documents.parquet"
"""The documents of a corpus (workers.contract.run.corpora)."""
SHOWN_ROWS_FILE = "shown.jsonl"
"""The rows of ROWS, one per line, shortened for pages; with SHOWN_INDEX any page is read without Parquet."""
SHOWN_INDEX = "shown.idx"
"""The offset of each line of SHOWN, as little-endian unsigned 64-bit integers."""


def write_result(folder: Path, name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Write a result as JSON and return it."""
    draft = folder / f"{name}.part"
    draft.write_bytes(msgspec.json.encode(result))
    draft.replace(folder / name)
    return result


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Closing:
    """Base of context managers that are closed at the end of their block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class DraftFile(Closing):
    """File that is written under a temporary name until `finish`. Closed before that, it leaves nothing."""

    def __init__(self, path: Path) -> None:
        self._path, self._draft = path, path.with_name(f"{path.name}.part")
        self.file = self._draft.open("wb", buffering=2**18)

    def finish(self) -> None:
        """Sync the file to disk, and put it in place."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self._draft.replace(self._path)
        self.close()

    def close(self) -> None:
        self.file.close()
        self._draft.unlink(missing_ok=True)
