"""Which canonical rows are meant: by text, difficulty, tag, length, part, or by number.

`Filter` is plain Python, for forms and the record of where a version came from; `matching` asks pyarrow, in the child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

NO_DIFFICULTY = ""
"""As a difficulty: rows that have none."""


class FilterError(ValueError):
    """The filter can't be used; the message is for people."""


@dataclass(frozen=True)
class RowFilter:
    """What is empty or None asks for nothing; what is given must all hold."""

    text: str = ""
    """In a message of the prompt, in the answer, a test or the metadata; letters' case does not count."""
    difficulty: tuple[str, ...] = ()
    """One of them."""
    tags: tuple[str, ...] = ()
    """At least one of them."""
    min_prompt_chars: int | None = None
    max_prompt_chars: int | None = None
    """Characters of the prompt without the system prompt, both ends included."""
    max_prompt_tokens: int | None = None
    """Of the whole prompt as the model gets it. Only where a version is made are tokens counted."""
    part: str = ""
    """train or validation"""
    row_ids: tuple[int, ...] | None = None
    """Exactly these; () is no row."""

    def __bool__(self) -> bool:
        return self != RowFilter()

    def as_dict(self) -> dict[str, Any]:
        """Only what is asked for."""
        return {name: value for name, value in asdict(self).items() if value != getattr(RowFilter, name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RowFilter:
        """Raises FilterError for what is no filter."""
        try:
            made: RowFilter = msgspec.convert(data, cls, strict=True)
        except msgspec.ValidationError as error:
            raise FilterError(f"The filter can't be read: {error}.") from error
        if unknown := set(data) - {field.name for field in fields(cls)}:
            raise FilterError(f"A filter has no {', '.join(sorted(unknown))}.")
        if made.part not in ("", "train", "validation"):
            raise FilterError(f"There is no part {made.part!r}: train or validation.")
        least, most = made.min_prompt_chars, made.max_prompt_chars
        if least is not None and most is not None and least > most:
            raise FilterError(f"No prompt has at least {least:,} and at most {most:,} characters.")
        return made

    def sentence(self) -> str:
        """For people: `difficulty easy or hard; prompts of at most 400 characters`. Empty: all rows."""
        least, most = self.min_prompt_chars, self.max_prompt_chars
        said = []
        if self.text:
            said.append(f"with “{self.text}”")
        if self.difficulty:
            said.append(f"difficulty {' or '.join(name or 'none' for name in self.difficulty)}")
        if self.tags:
            said.append(f"tagged {' or '.join(self.tags)}")
        if least is not None and most is not None:
            said.append(f"prompts of {least:,} to {most:,} characters")
        elif least is not None:
            said.append(f"prompts of at least {least:,} characters")
        elif most is not None:
            said.append(f"prompts of at most {most:,} characters")
        if self.max_prompt_tokens is not None:
            said.append(f"prompts of at most {self.max_prompt_tokens:,} tokens")
        if self.part:
            said.append(f"the {'validation' if self.part == 'validation' else 'training'} part")
        if self.row_ids is not None:
            said.append(f"{len(self.row_ids):,} row{'s' * (len(self.row_ids) != 1)} by number")
        return "; ".join(said)


def matching(batch: pa.RecordBatch, wanted: RowFilter) -> list[int]:
    """The places in the batch (columns of canonical.SCHEMA) of the rows that are meant, in order.

    Raises FilterError where tokens would have to be counted.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if wanted.max_prompt_tokens is not None:
        raise FilterError("Rows are chosen by their tokens only where a version is made of them.")
    mask = np.ones(batch.num_rows, dtype=bool)
    if wanted.part:
        mask &= _bools(pc.equal(batch.column("split"), wanted.part))
    if wanted.row_ids is not None:
        mask &= _bools(pc.is_in(batch.column("row_id"), value_set=pa.array(wanted.row_ids, pa.int64())))
    if wanted.min_prompt_chars is not None or wanted.max_prompt_chars is not None:
        chars = _prompt_chars(batch)
        mask &= chars >= (wanted.min_prompt_chars or 0)
        if wanted.max_prompt_chars is not None:
            mask &= chars <= wanted.max_prompt_chars
    if wanted.text:
        mask &= _with_text(batch, wanted.text)
    places = [int(place) for place in np.flatnonzero(mask)]
    if wanted.difficulty or wanted.tags:
        metadata = batch.column("metadata")
        places = [place for place in places if _named(metadata[place].as_py(), wanted)]
    return places


def _prompt_chars(batch: pa.RecordBatch) -> Any:
    import numpy as np
    import pyarrow.compute as pc

    role, content, row = _messages(batch)
    counted = _bools(pc.not_equal(role, "system"))
    lengths = pc.utf8_length(content).to_numpy(zero_copy_only=False)
    rows, many = row[counted], batch.num_rows
    between = np.maximum(np.bincount(rows, minlength=many) - 1, 0)  # a line break between two messages
    return np.bincount(rows, weights=lengths[counted], minlength=many).astype(np.int64) + between


def _with_text(batch: pa.RecordBatch, text: str) -> Any:
    import numpy as np
    import pyarrow.compute as pc

    _, content, row = _messages(batch)
    found = np.zeros(batch.num_rows, dtype=bool)
    found[row[_bools(pc.match_substring(content, text, ignore_case=True))]] = True
    found |= _bools(pc.match_substring(batch.column("answer"), text, ignore_case=True))
    tests = batch.column("test_cases")
    in_tests = _bools(pc.match_substring(pc.list_flatten(tests), text, ignore_case=True))
    found[pc.list_parent_indices(tests).to_numpy(zero_copy_only=False)[in_tests]] = True
    inside = msgspec.json.encode(text).decode()[1:-1]  # as it stands in the metadata, which is JSON
    return found | _bools(pc.match_substring(batch.column("metadata"), inside, ignore_case=True))


def _messages(batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """(roles, contents, the row of each) of all messages of the batch."""
    import pyarrow.compute as pc

    prompt = batch.column("prompt")
    flat = pc.list_flatten(prompt)
    row = pc.list_parent_indices(prompt).to_numpy(zero_copy_only=False)
    return pc.struct_field(flat, "role"), pc.struct_field(flat, "content"), row


def _bools(array: Any) -> Any:
    return array.fill_null(False).to_numpy(zero_copy_only=False)


class _Named(msgspec.Struct):
    difficulty: Any = None
    tags: Any = None


_names_of = msgspec.json.Decoder(_Named).decode


def _named(metadata: str, wanted: RowFilter) -> bool:
    """Difficulty and tags as the statistics name them."""
    row = _names_of(metadata)
    tags = row.tags if isinstance(row.tags, list) else [row.tags]
    told = isinstance(row.difficulty, str | int | float)
    difficulty = str(row.difficulty) if told else NO_DIFFICULTY
    return (not wanted.difficulty or difficulty in wanted.difficulty) and (
        not wanted.tags or any(tag in wanted.tags for tag in tags)
    )
