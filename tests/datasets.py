"""Canonical datasets for tests: rows as a person would write them, as the file that a run is trained on."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader.versions import canonical, shown
from workers.contract.run.dataset import TRAIN, VALIDATION

if TYPE_CHECKING:
    from controlplane.catalogue.datasets.models import DatasetVersion

SUMS = ({"prompt": "1+1", "answer": "2"},)
_OWN = ("row", "prompt", "answer", "test_cases")


def parquet(rows: Iterable[Mapping[str, Any]] = SUMS, *, validation: int = 0) -> bytes:
    """{"prompt": a text or messages, "answer", "test_cases", "row", ...metadata} each; `row` counts from 0 by itself.
    The last `validation` of them are kept out of training. All prompts are of the first one's kind."""
    rows = list(rows)
    chat = bool(rows) and not isinstance(rows[0]["prompt"], str)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        with canonical.RowWriter(path, chat=chat) as writer:
            for number, row in enumerate(rows):
                prompt = row["prompt"]
                writer.add(
                    {
                        "row_id": row.get("row", number),
                        "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
                        "answer": row.get("answer"),
                        "test_cases": row.get("test_cases", []),
                        "metadata": {name: value for name, value in row.items() if name not in _OWN},
                        "split": VALIDATION if number >= len(rows) - validation else TRAIN,
                    }
                )
            writer.finish()
        return path.read_bytes()


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file, with their metadata as an object."""
    return [{**row, "metadata": json.loads(row["metadata"])} for row in pq.read_table(path).to_pylist()]


def ready_version(
    name: str, rows: Iterable[Mapping[str, Any]] = SUMS, *, validation: int = 0, **columns: Any
) -> DatasetVersion:
    """A version of the dataset `name` that runs can be launched with, its file included."""
    from controlplane.catalogue.datasets.models import Dataset, DatasetVersion

    rows = list(rows)
    content = parquet(rows, validation=validation)
    dataset, _ = Dataset.objects.get_or_create(name=name)
    values: dict[str, Any] = {
        "number": dataset.versions.count() + 1,
        "status": DatasetVersion.READY,
        "rows": len(rows),
        "validation_rows": validation,
        "columns": ["prompt", "answer"],
        "mapping": {"prompt": "prompt", "answer": "answer", "chat": bool(rows) and isinstance(rows[0]["prompt"], list)},
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    version = DatasetVersion.objects.create(dataset=dataset, **{**values, **columns})
    version.rows_path.parent.mkdir(parents=True, exist_ok=True)
    version.rows_path.write_bytes(content)
    listed = shown.ShortRowWriter(version.folder)
    for row in read(version.rows_path):
        listed.add(row)
    listed.finish()
    return version
