"""Dataset rows as the trainer passes them to rewards: complete, even if a page shows less."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.datasets import browsing
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.columns.mapping import prompt_text
from runs.engine.models import Run
from runs.engine.spec import mixed_versions
from workers.contract.run.dataset import row_for_rewards
from workers.contract.run.mixing import place_of
from workers.contract.run.row_names import names_of

MAX_BYTES = 16 * 2**20
MAX_CACHED_ROWS = 64
MAX_CACHED_CHARS = 2**20
EXAMPLE_ROW = {
    "row": 0,
    "prompt": [{"role": "user", "content": "What is 6 times 7?"}],
    "answer": "42",
    "test_cases": [],
}


class NamedRow(dict[str, Any]):
    """A row with the names by which reward components may be limited to it (workers.contract.run.row_names). Rows of
    other classes are made up, so that it is unknown which components would apply to them."""

    def __init__(self, row: Mapping[str, Any], names: Collection[str]) -> None:
        super().__init__(row)
        self.names = frozenset(names)


@dataclass(frozen=True)
class RowSearch:
    rows: dict[int, NamedRow]
    problem: str = ""


@dataclass(frozen=True)
class RowPlace:
    """A row and its position in the dataset version."""

    row: dict[str, Any]
    index: int = 0
    count: int = 1
    problem: str = ""


def by_number(version: DatasetVersion, numbers: Collection[int]) -> RowSearch:
    """Read the rows with these numbers in one pass, and return those that exist."""
    cached_rows = {
        number: _named(row, version) for number in numbers if (row := _cache.get((version.sha256, number))) is not None
    }
    missing_numbers = [number for number in set(numbers) if number not in cached_rows]
    if not missing_numbers:
        return RowSearch(cached_rows)
    try:
        result = browsing.exact(version, missing_numbers, MAX_BYTES)
    except DatasetError as error:
        return RowSearch(cached_rows, f"The rows of {version} can't be read: {error}")
    rows = {row["row_id"]: row_for_rewards(row, row["metadata"], chat=result["chat"]) for row in result["rows"]}
    for number, row in rows.items():
        _cache.put((version.sha256, number), row)
    left_out = result["left_out"]
    problem = f"{left_out} row{'s are' if left_out > 1 else ' is'} too large to show." if left_out else ""
    return RowSearch(cached_rows | {number: _named(row, version) for number, row in rows.items()}, problem)


def of_run(run: Run, numbers: Collection[int]) -> RowSearch:
    """Read rows of a run, whose mix numbers them over all of its datasets, as `by_number` does."""
    versions, problems = mixed_versions(run), list[str]()
    found: dict[int, NamedRow] = {}
    for index in sorted({place_of(number)[0] for number in numbers}):
        own_numbers = {place_of(number)[1]: number for number in numbers if place_of(number)[0] == index}
        version = versions[index] if index < len(versions) else None
        if version is None:
            problems.append("A dataset of the mix is gone.")
            continue
        search = by_number(version, own_numbers)
        problems.append(search.problem)
        source = {"source": version.dataset.name} if len(versions) > 1 else {}
        for number, row in search.rows.items():
            found[own_numbers[number]] = NamedRow({**source, **row, "row": own_numbers[number]}, row.names)
    return RowSearch(found, " ".join(filter(None, problems)))


def row_at(version: DatasetVersion | None, index: int) -> RowPlace:
    """Return the row at a position, which wraps around. Return an example row if there is no version or no rows."""
    preview, index, count = _read_preview(version, index)
    if version is None or preview is None:
        return RowPlace(dict(EXAMPLE_ROW))
    problem = ""
    if _may_be_incomplete(preview):
        search = by_number(version, [preview["row_id"]])
        if preview["row_id"] in search.rows:
            return RowPlace(search.rows[preview["row_id"]], index, count)
        problem = search.problem
    if "prompt" not in preview:
        example = {**EXAMPLE_ROW, "row": preview["row_id"]}
        return RowPlace(example, index, count, f"{problem} An example row is used instead.")
    row = row_for_rewards(preview, preview["metadata"], chat=bool(version.mapping.get("chat", True)))
    return RowPlace(_named(row, version), index, count, problem and f"{problem} The row may be truncated.")


def _named(row: Mapping[str, Any], version: DatasetVersion) -> NamedRow:
    return NamedRow(row, names_of(row, version.dataset.name))


def shown_prompt(row: Mapping[str, Any]) -> str:
    prompt = row["prompt"]
    return prompt if isinstance(prompt, str) else prompt_text(prompt)


def _read_preview(version: DatasetVersion | None, index: int) -> tuple[dict[str, Any] | None, int, int]:
    """Return a row as the version's pages show it, with its index and the number of rows; if the files are missing,
    use the preview rows of the import report."""
    if version is None:
        return None, 0, 0
    count = max(1, version.rows)
    try:
        [row] = browsing.page(version, start=index % count, limit=1)["rows"]
    except (DatasetError, ValueError):
        rows = [row for row in (version.report.get("mapped") or {}).get("preview", []) if row.get("prompt")]
        return (rows[index % len(rows)], index % len(rows), len(rows)) if rows else (None, 0, 0)
    return row, index % count, count


def _may_be_incomplete(row: Mapping[str, Any]) -> bool:
    """Return whether a shortened row may be incomplete, because it is too large or has truncated values."""
    if "too_large" in row:
        return True
    return any(isinstance(part, list) and len(part) >= 20 for part in _parts(row)) or any(
        isinstance(part, str) and (part.endswith("…") or "\ufffd" in part) for part in _parts(row)
    )


def _parts(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for element in inner:
        yield from _parts(element)


class _Cache:
    """Cache of recently used rows. Versions never change, so entries stay valid."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, int], dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> dict[str, Any] | None:
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
            return self._rows.get(key)

    def put(self, key: tuple[str, int], row: dict[str, Any]) -> None:
        if len(str(row)) > MAX_CACHED_CHARS:
            return
        with self._lock:
            self._rows[key] = row
            while len(self._rows) > MAX_CACHED_ROWS:
                self._rows.popitem(last=False)


_cache = _Cache()
