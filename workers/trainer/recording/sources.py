"""Figures of the prompts from each source, such as a dataset of a mix, a family of tasks or a tag."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from workers.contract.run.prompts import MAX_SOURCE_CHARS
from workers.contract.run.row_names import COLUMNS, TAGS, names_in
from workers.trainer.data import Rows

MAX_SOURCES = 12
MIN_SHARE = 0.02
"""Minimum share of the rows that have a tag which is followed."""
SAMPLE_ROWS = 2000
"""Number of rows, spread over the dataset, from which the column is chosen."""


class Sources:
    """The sources of a run's rows, and the rows' tags. The sources are those of a mix or, without one, from the first
    column with two to MAX_SOURCES of them. A row with several tags has several sources. Of many tags, the most frequent
    ones count that not every row has."""

    def __init__(self, rows: Rows) -> None:
        """Choose the columns that hold the rows' sources."""
        self._rows = rows
        metadata = rows.by_id.arrow.column("metadata")
        interval = max(1, len(metadata) // SAMPLE_ROWS)
        examples = [json.loads(metadata[index].as_py()) for index in range(0, len(metadata), interval)]
        followed = {name: _followed([_sources(example, name) for example in examples]) for name in (*COLUMNS, TAGS)}
        column = next((name for name in COLUMNS if len(followed[name]) > 1 and not rows.by_id.sources), TAGS)
        self._followed = {name: followed[name] for name in (column, TAGS) if len(followed[name]) > 1}
        self.of = cache(self._of)

    def _of(self, row: int) -> set[str]:
        metadata, followed = self._rows.by_id[row], self._followed.items()
        own = {source for column, names in followed for source in names.intersection(_sources(metadata, column))}
        return own | ({mixed[:MAX_SOURCE_CHARS]} if (mixed := self._rows.by_id.source_of(row)) else set())

    def __bool__(self) -> bool:
        return bool(self._followed or self._rows.by_id.sources)

    def means(self, values: Iterable[tuple[int, float | None]]) -> dict[str, float]:
        """Return each source's mean value from pairs of a row and a value of one of its completions or groups."""
        by_source: dict[str, list[float]] = defaultdict(list)
        for row, value in values if self else ():
            if value is not None:
                for source in self.of(row):
                    by_source[source].append(value)
        return {source: sum(members) / len(members) for source, members in by_source.items()}


def _followed(rows: Sequence[Collection[str]]) -> frozenset[str]:
    """Return the sources whose rewards are logged. `rows`: the sources of each row in one column."""
    counts = Counter(chain.from_iterable(rows))
    if all(len(names) <= 1 for names in rows):
        return frozenset(counts if len(counts) <= MAX_SOURCES else ())
    min_count = max(2.0, MIN_SHARE * len(rows))
    telling = [name for name, count in counts.most_common() if min_count <= count < len(rows)]
    return frozenset(telling[:MAX_SOURCES])


def _sources(row: Mapping[str, Any], column: str) -> list[str]:
    return list(dict.fromkeys(name[:MAX_SOURCE_CHARS] for name in names_in(row, column)))
