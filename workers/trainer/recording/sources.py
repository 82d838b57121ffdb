"""Figures of the prompts from each source, such as a dataset, a family of tasks or a tag."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from workers.trainer.data import Rows

COLUMNS = ("source", "data_source", "source_dataset", "dataset", "family", "task", "subject", "category", "tags")
"""Names under which the metadata of rows may hold their source, in order of preference."""
MAX_SOURCES = 12
SAMPLE_ROWS = 2000
"""Number of rows, spread over the dataset, from which the column is chosen."""
MAX_CHARS = 60


class Sources:
    """The sources of a dataset's rows. There are none if no column has between two and MAX_SOURCES of them."""

    def __init__(self, rows: Rows) -> None:
        """Choose the column that holds the rows' source."""
        self._rows = rows
        metadata = rows.by_id.arrow.column("metadata")
        interval = max(1, len(metadata) // SAMPLE_ROWS)
        examples = [json.loads(metadata[index].as_py()) for index in range(0, len(metadata), interval)]
        self._column = next((name for name in COLUMNS if 2 <= _count(examples, name) <= MAX_SOURCES), "")
        self.of = cache(self._of)

    def _of(self, row: int) -> str:
        return _source(self._rows.by_id[row], self._column)

    def __bool__(self) -> bool:
        return bool(self._column)

    def means(self, values: Iterable[tuple[int, float | None]]) -> dict[str, float]:
        """Return each source's mean value from pairs of a row and a value of one of its completions or groups."""
        by_source: dict[str, list[float]] = defaultdict(list)
        for row, value in values if self._column else ():
            if value is not None and (source := self.of(row)):
                by_source[source].append(value)
        return {source: sum(members) / len(members) for source, members in by_source.items()}


def _count(examples: list[Mapping[str, Any]], column: str) -> int:
    return len({source for example in examples if (source := _source(example, column))})


def _source(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, list) and value:
        value = value[0]
    return value.strip()[:MAX_CHARS] if isinstance(value, str) else ""
