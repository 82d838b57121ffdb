"""Dataset versions in any state, made by the flow itself."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import count
from typing import Any

from controlplane.datasets import flow
from controlplane.datasets.mapping import ColumnMapping
from controlplane.datasets.models import DatasetVersion

ROWS: list[dict[str, Any]] = [{"question": f"What is {n} plus {n}?", "answer": f"Easy. #### {2 * n}"} for n in range(5)]
MAPPING = ColumnMapping(prompt="question", answer="answer", answer_after="####")
_numbers = count(1)


def jsonl(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def uploaded(content: bytes | None = None, *, name: str = "", file_name: str = "rows.jsonl") -> DatasetVersion:
    content = jsonl(ROWS) if content is None else content
    return flow.create_version(None, name or f"data{next(_numbers)}", BytesIO(content), file_name)


def checked(content: bytes | None = None) -> DatasetVersion:
    version = uploaded(content)
    flow.validate(version)
    version.refresh_from_db()
    return version


def ready(rows: list[Any] | None = None, mapping: ColumnMapping = MAPPING) -> DatasetVersion:
    version = checked(jsonl(rows) if rows is not None else None)
    flow.apply_mapping(version, mapping)
    return version
