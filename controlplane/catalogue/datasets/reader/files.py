"""File names in a version's folder. Files are written under temporary names first, so existing ones are complete."""

import hashlib
import os
from pathlib import Path
from typing import Any, Self

import msgspec

SOURCE = "source"
"""The uploaded or fetched file, unmodified, in any format."""
REPORT = "report.json"
"""The results of `check` (problems.Report)."""
PROBLEMS = "problems.jsonl"
"""All problems of the check, one problems.DataProblem per line."""
MAPPED = "mapped.json"
"""The results of `import`."""
MAPPED_PROBLEMS = "mapped_problems.jsonl"
PROGRESS = "progress.json"
"""{"stage": str, "bytes": int, "of": int, "rows": int, "of_rows": int, "mb_per_s": float}:
replaced at most twice a second."""
ROWS = "rows.parquet"
"""The canonical rows (canonical.SCHEMA) for the trainer, identified by their sha256."""
DOCUMENTS = "documents.parquet"
"""The documents of a corpus (workers.contract.run.corpora)."""
SHOWN = "shown.jsonl"
"""One row of ROWS per line, shortened for pages; SHOWN_INDEX finds any page without reading Parquet."""
SHOWN_INDEX = "shown.idx"
"""The offset of each line of SHOWN: unsigned 64-bit numbers, little-endian."""


def write_answer(folder: Path, name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Write an answer as JSON and return it."""
    draft = folder / f"{name}.part"
    draft.write_bytes(msgspec.json.encode(answer))
    draft.replace(folder / name)
    return answer


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Closing:
    """A context manager that is closed at the end of its block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class DraftFile(Closing):
    """A file that is written under a temporary name until `settle`; closed before, it leaves nothing."""

    def __init__(self, path: Path) -> None:
        self._path, self._draft = path, path.with_name(f"{path.name}.part")
        self.file = self._draft.open("wb", buffering=2**18)

    def settle(self) -> None:
        """Put the file in place, flushed to disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self._draft.replace(self._path)
        self.close()

    def close(self) -> None:
        self.file.close()
        self._draft.unlink(missing_ok=True)
