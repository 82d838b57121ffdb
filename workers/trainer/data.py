"""The canonical dataset file: its rows in memory, and the columns that TRL gets."""

import hashlib
import json
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.contract.run.dataset import COLUMNS, TRAIN, VALIDATION, chat_in, row_for_rewards
from workers.contract.run.mixing import ROWS_OF_SOURCE, SourceSpec, path_in, place_of
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import SpecError

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


class Table(Mapping[int, Row]):
    """Map from row id to row. Each row is built from the columns on access, so that a million rows take only a few
    arrays."""

    def __init__(self, table: "pa.Table", *, chat: bool, sources: Sequence[str] = ()) -> None:
        """Wrap a table. `sources`: the names of the mix's sources; empty without a mix."""
        self.arrow = table
        self.chat = chat
        self.sources = tuple(sources)
        self._ids = table.column("row_id").to_numpy()

    def __getitem__(self, row_id: int) -> Row:
        row = self.arrow.slice(self.index_of(row_id), 1).to_pylist()[0]
        source = {"source": self.source_of(row_id)} if self.sources else {}
        return source | row_for_rewards(row, json.loads(row["metadata"]), chat=self.chat)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __len__(self) -> int:
        return len(self._ids)

    def source_of(self, row_id: int) -> str:
        """Return the name of the row's source in a mix; "" without a mix."""
        return self.sources[place_of(row_id)[0]] if self.sources else ""

    def index_of(self, row_id: int) -> int:
        """Return the row's index in the table, whose ids ascend. Raises KeyError if no row has this id."""
        index = bisect_left(self._ids, row_id)
        if index == len(self._ids) or self._ids[index] != row_id:
            raise KeyError(row_id)
        return index


@dataclass(frozen=True)
class Rows:
    by_id: Table
    """Complete rows for rewards; their columns may differ."""
    train: list[int]
    evaluation: list[int]


def read(folder: Path, spec: AttemptSpec) -> Rows:
    """Read the attempt's dataset, or mix its datasets, and draw the rows to evaluate. Raises SpecError if a file can't
    be read, isn't the one of the launch, or has too few rows."""
    main, count, seed = spec.run.data, spec.run.data.eval_rows, int(spec.run.grpo.get("seed", 42))
    tables = [_read_source(folder / FileName.DATASET, main)]
    tables += [_read_source(path_in(folder, source.sha256), source) for source in main.sources]
    train = [
        index * ROWS_OF_SOURCE + row
        for index, (table, source) in enumerate(zip(tables, main.every_source, strict=True))
        for row in _training_rows(table, source, seed)
    ]
    table = _mixed(tables, main.every_source) if main.sources else tables[0]
    validation = _of_split(tables[0], VALIDATION)
    if count > len(validation):
        available = f"{len(validation)} validation rows" if validation else "no validation rows"
        raise SpecError(f"The run evaluates on {count} rows, but the dataset has {available}.")
    if not train:
        raise SpecError("The dataset has no rows to train on.")
    return Rows(by_id=table, train=train, evaluation=sample(validation, count, seed))


def _read_source(path: Path, source: SourceSpec) -> Table:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"The dataset can't be read: {error.strerror or error} ({path}).") from error
    if source.sha256 and digest != source.sha256:
        raise SpecError(f"{path.name} is not the file that the run was launched with: its checksum differs.")
    table = _table(path)
    return _with_system_prompt(table, source) if source.system_prompt else table


def _of_split(table: Table, split: str) -> list[int]:
    splits = table.arrow.column("split").to_pylist()
    return [row for row, row_split in zip(table, splits, strict=True) if row_split == split]


def _training_rows(table: Table, source: SourceSpec, seed: int) -> list[int]:
    rows = _of_split(table, TRAIN)
    return sample(rows, source.max_rows, seed) if 0 < source.max_rows < len(rows) else rows


def _with_system_prompt(table: Table, source: SourceSpec) -> Table:
    import pyarrow as pa

    if not table.chat:
        raise SpecError(f"{source.name} has plain-text prompts, which can't have a system prompt. Leave it empty.")
    column = table.arrow.schema.get_field_index("prompt")
    system = {"role": "system", "content": source.system_prompt}
    prompts = [
        [system, *(message for message in prompt if message["role"] != "system")]
        for prompt in table.arrow.column(column).to_pylist()
    ]
    field = table.arrow.schema.field(column)
    return Table(table.arrow.set_column(column, field, pa.array(prompts, field.type)), chat=True)


def _mixed(tables: Sequence[Table], sources: Sequence[SourceSpec]) -> Table:
    """Join the tables of a mix, with the run's row numbers."""
    import pyarrow as pa

    if len({table.chat for table in tables}) > 1:
        texts = ", ".join(source.name for table, source in zip(tables, sources, strict=True) if not table.chat)
        raise SpecError(
            f"The mix has conversations and plain-text prompts (in {texts}). Map all datasets the same way."
        )
    numbered_tables = []
    for index, (table, source) in enumerate(zip(tables, sources, strict=True)):
        ids = list(table)
        if not ids or ids[-1] >= ROWS_OF_SOURCE:
            raise SpecError(f"{source.name} can't be mixed: it has {'too many rows' if ids else 'no rows'}.")
        column = table.arrow.schema.get_field_index("row_id")
        run_ids = pa.array([index * ROWS_OF_SOURCE + row for row in ids], pa.int64())
        numbered_tables.append(table.arrow.set_column(column, "row_id", run_ids))
    names = [source.name for source in sources]
    return Table(pa.concat_tables(numbered_tables), chat=tables[0].chat, sources=names)


def sample(ids: list[int], count: int, seed: int) -> list[int]:
    """Return a random sample of `count` ids, in file order."""
    return sorted(random.Random(seed).sample(ids, count))  # noqa: S311  # a sample, not a secret


def to_dataset(rows: Rows, ids: list[int]) -> Any:
    """Build a datasets.Dataset with only prompt and row id. The other columns are omitted: their types differ between
    datasets, and some names (image, environment) have a meaning for TRL. Rewards get complete rows by id."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from datasets import Dataset  # imported here, because `read` runs before anything slow is imported

    prompt = rows.by_id.arrow.column("prompt").take(pa.array([rows.by_id.index_of(row) for row in ids], pa.int64()))
    if not rows.by_id.chat:
        prompt = pc.struct_field(pc.list_element(prompt, 0), "content")
    return Dataset(pa.table({"prompt": prompt, "row": pa.array(ids, pa.int64())}))


def prompt_text(prompt: Any) -> str:
    """Render a prompt as readable text."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return _content(prompt[0])
    return "\n".join(f"{message.get('role')}: {_content(message)}" for message in prompt)


def completion_text(completion: Any) -> str:
    """Return the last text that the model wrote. TRL passes strings for text prompts and messages for chats."""
    if isinstance(completion, str):
        return completion
    own_messages = (message for message in reversed(completion) if message.get("role") == "assistant")
    return _content(next(own_messages, completion[-1]))


def turns(messages: Any) -> list[Any] | None:
    """Return JSON-compatible copies of several messages, or of one with tool calls; None for a single plain text."""
    if isinstance(messages, str) or (len(messages) == 1 and not messages[0].get("tool_calls")):
        return None
    return json_copy(messages)


def json_copy(messages: Any) -> list[Any]:
    copy: list[Any] = json.loads(json.dumps(messages, default=str))
    return copy


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if content is None:  # only calls tools
        return ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _table(path: Path) -> Table:
    """Read the dataset file. Raises SpecError if its rows are not canonical."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=list(COLUMNS))
        rows = Table(table.replace_schema_metadata(None), chat=chat_in(table.schema.metadata))
        ids = list(rows)
        if any(row >= next_row for row, next_row in pairwise(ids)):
            raise ValueError("its row ids don't ascend")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise SpecError(f"{FileName.DATASET} has no canonical rows: {reason}.") from error
    return rows
