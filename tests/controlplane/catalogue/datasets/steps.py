"""Dataset versions in any state, made by the product's own steps."""

from __future__ import annotations

from io import BytesIO
from itertools import count
from typing import Any

from controlplane.catalogue.datasets import actions, worker
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from tests.controlplane.catalogue.datasets.sources import jsonl

ROWS: list[dict[str, Any]] = [{"question": f"What is {n} plus {n}?", "answer": f"Easy. #### {2 * n}"} for n in range(5)]
MAPPING = ColumnMapping(prompt="question", answer="answer", answer_after="####")
_numbers = count(1)


def uploaded(content: bytes | None = None, *, name: str = "", file_name: str = "rows.jsonl") -> DatasetVersion:
    content = jsonl(ROWS) if content is None else content
    return actions.create_from_upload(None, name or f"data{next(_numbers)}", BytesIO(content), file_name)


def worked(version: DatasetVersion) -> DatasetVersion:
    worker.process(version)
    version.refresh_from_db()
    return version


def checked(content: bytes | None = None, *, name: str = "") -> DatasetVersion:
    return worked(uploaded(content, name=name))


def ready(rows: list[Any] | None = None, mapping: ColumnMapping = MAPPING, *, share: float = 0.0) -> DatasetVersion:
    version = checked(jsonl(rows) if rows is not None else None)
    if not actions.request_import(version, mapping, share=share):
        raise AssertionError(f"{version} does not wait for a mapping: {version.report}")
    return worked(version)
