"""Filters of canonical rows by text, difficulty, tags, length, split or number, and limits to the first or random ones.

`RowFilter` is plain Python, for forms and for storing a version's origin; `matching` uses pyarrow, in the child.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

SEED = 42
NO_DIFFICULTY = ""
"""Name that a filter uses for rows without a difficulty."""


class FilterError(ValueError):
    """Error about an invalid filter, with a message for people."""


@dataclass(frozen=True)
class RowFilter:
    """Conditions that rows must meet. Conditions that are empty or None don't apply."""

    text: str = ""
    """Text that the prompt, the answer, a test or the metadata must contain, ignoring case."""
    difficulty: tuple[str, ...] = ()
    """Difficulties, one of which must match."""
    tags: tuple[str, ...] = ()
    """Tags, one of which must match."""
    min_prompt_chars: int | None = None
    max_prompt_chars: int | None = None
    """Inclusive bounds on the number of the prompt's characters, without the system prompt."""
    max_prompt_tokens: int | None = None
    """Maximum tokens of the whole prompt in the model's chat template; only for derived versions."""
    part: str = ""
    """Split of the rows: train or validation."""
    row_ids: tuple[int, ...] | None = None
    """Ids of the rows to select; () selects no rows."""
    left_out: tuple[int, ...] = ()
    """Ids of rows to leave out."""
    first: int | None = None
    """Number of rows to take from the start of those that pass the other conditions; only for derived versions."""
    random: int | None = None
    """Number of rows to draw at random from those that pass the other conditions; only for derived versions."""
    seed: int = SEED

    def __bool__(self) -> bool:
        return self != RowFilter(seed=self.seed)

    def as_dict(self) -> dict[str, Any]:
        """Return the conditions that apply, by name."""
        return {name: value for name, value in asdict(self).items() if value != getattr(RowFilter, name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RowFilter":
        """Build a filter from a dict. Raises FilterError if the filter is invalid."""
        try:
            row_filter: RowFilter = msgspec.convert(data, cls, strict=True)
        except msgspec.ValidationError as error:
            raise FilterError(f"The filter can't be read: {error}.") from error
        if unknown := set(data) - {field.name for field in fields(cls)}:
            raise FilterError(f"A filter has no conditions named {', '.join(sorted(unknown))}.")
        if row_filter.part not in ("", "train", "validation"):
            raise FilterError(f"There is no part {row_filter.part!r}. Choose train or validation.")
        if row_filter.first is not None and row_filter.random is not None:
            raise FilterError("Choose the first rows or random ones, not both.")
        if any(number is not None and number < 1 for number in (row_filter.first, row_filter.random)):
            raise FilterError("Choose at least one row.")
        minimum, maximum = row_filter.min_prompt_chars, row_filter.max_prompt_chars
        if minimum is not None and maximum is not None and minimum > maximum:
            raise FilterError(f"No prompt has at least {minimum:,} and at most {maximum:,} characters.")
        return row_filter

    def sentence(self) -> str:
        """Describe the filter, as in “difficulty easy or hard; prompts of at most 400 characters”; "" for all rows."""
        conditions = (
            f"with “{self.text}”" if self.text else "",
            f"difficulty {' or '.join(name or 'none' for name in self.difficulty)}" if self.difficulty else "",
            f"tagged {' or '.join(self.tags)}" if self.tags else "",
            _length_condition(self.min_prompt_chars, self.max_prompt_chars),
            f"prompts of at most {self.max_prompt_tokens:,} tokens" if self.max_prompt_tokens is not None else "",
            f"the {'validation' if self.part == 'validation' else 'training'} part" if self.part else "",
            f"{_rows(len(self.row_ids))} by number" if self.row_ids is not None else "",
            f"without {_rows(len(self.left_out))} by number" if self.left_out else "",
            f"the first {_rows(self.first)}" if self.first is not None else "",
            f"{_rows(self.random, 'random ')}, drawn with seed {self.seed}" if self.random is not None else "",
        )
        return "; ".join(filter(None, conditions))


def matching(batch: "pa.RecordBatch", row_filter: RowFilter) -> list[int]:
    """Return the indexes of the rows in a batch of canonical.SCHEMA that pass the filter, in order.

    Raises FilterError for conditions that only a derived version may have.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if row_filter.max_prompt_tokens is not None:
        raise FilterError("Filtering by tokens is only possible when deriving a version.")
    if row_filter.first is not None or row_filter.random is not None:
        raise FilterError("Limiting the number of rows is only possible when deriving a version.")
    mask = np.ones(batch.num_rows, dtype=bool)
    if row_filter.part:
        mask &= _bools(pc.equal(batch.column("split"), row_filter.part))
    if row_filter.row_ids is not None:
        mask &= _bools(pc.is_in(batch.column("row_id"), value_set=pa.array(row_filter.row_ids, pa.int64())))
    if row_filter.left_out:
        mask &= ~_bools(pc.is_in(batch.column("row_id"), value_set=pa.array(row_filter.left_out, pa.int64())))
    if row_filter.min_prompt_chars is not None or row_filter.max_prompt_chars is not None:
        chars = _prompt_chars(batch)
        mask &= chars >= (row_filter.min_prompt_chars or 0)
        if row_filter.max_prompt_chars is not None:
            mask &= chars <= row_filter.max_prompt_chars
    if row_filter.text:
        mask &= _contains_text(batch, row_filter.text)
    indexes: list[int] = np.flatnonzero(mask).tolist()
    if row_filter.difficulty or row_filter.tags:
        metadata = batch.column("metadata")
        indexes = [index for index in indexes if _has_names(metadata[index].as_py(), row_filter)]
    return indexes


def _length_condition(minimum: int | None, maximum: int | None) -> str:
    if minimum is not None and maximum is not None:
        return f"prompts of {minimum:,} to {maximum:,} characters"
    if minimum is not None:
        return f"prompts of at least {minimum:,} characters"
    return f"prompts of at most {maximum:,} characters" if maximum is not None else ""


def _rows(number: int, adjective: str = "") -> str:
    return f"{number:,} {adjective}row{'s' * (number != 1)}"


def _prompt_chars(batch: "pa.RecordBatch") -> Any:
    import numpy as np
    import pyarrow.compute as pc

    role, content, row_indexes = _messages(batch)
    is_compared = _bools(pc.not_equal(role, "system"))
    lengths = pc.utf8_length(content).to_numpy(zero_copy_only=False)
    rows, row_count = row_indexes[is_compared], batch.num_rows
    line_breaks = np.maximum(np.bincount(rows, minlength=row_count) - 1, 0)  # a line break between two messages
    return np.bincount(rows, weights=lengths[is_compared], minlength=row_count).astype(np.int64) + line_breaks


def _contains_text(batch: "pa.RecordBatch", text: str) -> Any:
    import numpy as np
    import pyarrow.compute as pc

    _, content, row_indexes = _messages(batch)
    matches = np.zeros(batch.num_rows, dtype=bool)
    matches[row_indexes[_bools(pc.match_substring(content, text, ignore_case=True))]] = True
    matches |= _bools(pc.match_substring(batch.column("answer"), text, ignore_case=True))
    tests = batch.column("test_cases")
    in_tests = _bools(pc.match_substring(pc.list_flatten(tests), text, ignore_case=True))
    matches[pc.list_parent_indices(tests).to_numpy(zero_copy_only=False)[in_tests]] = True
    json_text = msgspec.json.encode(text).decode()[1:-1]  # as written in the metadata, which is JSON
    return matches | _bools(pc.match_substring(batch.column("metadata"), json_text, ignore_case=True))


def _messages(batch: "pa.RecordBatch") -> tuple[Any, Any, Any]:
    """Return arrays of the roles, contents and row indexes of all messages in the batch."""
    import pyarrow.compute as pc

    prompt = batch.column("prompt")
    messages = pc.list_flatten(prompt)
    row_indexes = pc.list_parent_indices(prompt).to_numpy(zero_copy_only=False)
    return pc.struct_field(messages, "role"), pc.struct_field(messages, "content"), row_indexes


def _bools(array: Any) -> Any:
    return array.fill_null(False).to_numpy(zero_copy_only=False)


class _NamedMetadata(msgspec.Struct):
    difficulty: Any = None
    tags: Any = None


_names_of = msgspec.json.Decoder(_NamedMetadata).decode


def _has_names(metadata: str, row_filter: RowFilter) -> bool:
    row = _names_of(metadata)
    tags = row.tags if isinstance(row.tags, list) else [row.tags]
    has_difficulty = isinstance(row.difficulty, str | int | float)
    difficulty = str(row.difficulty) if has_difficulty else NO_DIFFICULTY
    return (not row_filter.difficulty or difficulty in row_filter.difficulty) and (
        not row_filter.tags or any(tag in row_filter.tags for tag in tags)
    )
