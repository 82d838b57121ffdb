"""Mapping of an uploaded row to a canonical one: the columns of prompt and answer, and their formatting.

This is plain Python without side effects: the child maps whole files with it, and forms use it for validation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from controlplane.catalogue.datasets.reader.columns import fields, templating
from controlplane.catalogue.datasets.reader.columns.conversations import Message, messages
from controlplane.catalogue.datasets.reader.columns.fields import Row, RowProblem
from controlplane.catalogue.datasets.reader.columns.transforms import COLUMNS, ENTRY_POINT, TRANSFORMS
from workers.rewards.entries.answer import normalised

RESERVED = frozenset(
    (
        *("row", "prompt", "answer", "test_cases", "prompts", "completion", "completions", "completion_ids"),
        *("image", "images", "tools", "trainer_state", "log_extra", "log_metric", "environments"),
        "chat_template_kwargs",
    )
)
"""Names with a meaning for rewards or TRL; columns with these names get the prefix `source_`."""
COLUMN_FIELDS = (*("prompt", "input", "answer", "test_cases", "difficulty", "tags", "follow_up", "follow_up_response"),)
"""Fields of a mapping that name a column."""
NO_PLAIN_MESSAGES = "Messages need a chat template, so they can't become plain text."
REASONING = "reasoning"
FILE_ROW, TURN = "file_row", "turn"
"""Metadata of a row made from one question of a file's row: that row's number, from 0, and the question's, from 1."""


@dataclass(frozen=True)
class ColumnMapping:
    """Roles of columns, and formatting of prompts."""

    prompt: str = ""
    transform: str = COLUMNS
    """One of TRANSFORMS, which extracts the answer from its column."""
    input: str = ""
    """Second column, whose text is appended to the prompt of rows that have it."""
    messages: bool = False
    """True if the prompt column contains chat messages. Without `answer`, their last assistant turn is the answer."""
    answer: str = ""
    """Column of the answer; "" if there are no answers or they are the last messages."""
    answer_after: str = ""
    """Marker after whose last occurrence the answer begins; "" for the whole text. Only some transforms use it."""
    test_cases: str = ""
    difficulty: str = ""
    tags: str = ""
    follow_up: str = ""
    """Column of a second question, which continues the prompt after the first answer."""
    follow_up_response: str = ""
    """Column of the answer to the second question."""
    one_per_turn: bool = False
    """True if a row with a second question becomes two rows: its first question alone, and the whole conversation."""
    system_prompt: str = ""
    template: str = ""
    """User's message with {prompt} and {column} placeholders; "" for the prompt alone."""
    chat: bool = True
    """True if the prompt uses the model's chat template, False if it is plain text for a base model."""
    leave_out: bool = False
    """True to leave out rows that don't fit the mapping; only on request, so that rows never vanish silently."""
    code: str = ""
    """Source of the function of a CUSTOM transform."""
    drop_duplicates: bool = False
    """True to keep only the first row of each prompt, ignoring white space and case."""

    @property
    def splits_turns(self) -> bool:
        return self.one_per_turn and bool(self.follow_up)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ColumnMapping":
        """Build a mapping from a dict, ignoring unknown fields."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


def resolved(mapping: ColumnMapping) -> ColumnMapping:
    """Return a mapping with its transform's default columns, which are all columns of a transform that makes rows."""
    transform = TRANSFORMS.get(mapping.transform)
    if transform and transform.makes_rows:
        columns: dict[str, Any] = dict.fromkeys((*COLUMN_FIELDS, "answer_after"), "") | dict(transform.columns)
        return replace(mapping, **columns)
    defaults = transform.columns if transform else {}
    # Messages include their answers.
    unset = [name for name in defaults if not getattr(mapping, name) and not (name == "answer" and mapping.messages)]
    changed: dict[str, Any] = {name: defaults[name] for name in unset}
    return replace(mapping, **changed) if changed else mapping


def checked_part(mapping: ColumnMapping) -> ColumnMapping:
    """Reduce a mapping to the part that a file's check depends on: not to text around prompts, which would make all of
    them similar, nor to difficulty and tags, which only the import reads."""
    return replace(
        resolved(mapping),
        system_prompt="",
        template="",
        difficulty="",
        tags="",
        chat=True,
        leave_out=False,
        drop_duplicates=False,
    )


def problems(mapping: ColumnMapping, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (mapping field, sentence) for each error of a mapping for a file with these columns."""
    if mapping.transform not in TRANSFORMS:
        yield "transform", f"There is no transform “{mapping.transform}”."
        return
    chosen = resolved(mapping)
    if TRANSFORMS[chosen.transform].makes_rows:
        if chosen.messages and not chosen.chat:
            yield "chat", NO_PLAIN_MESSAGES
        return
    if not chosen.prompt:
        yield "prompt", "Choose the column with the prompt."
    for name in COLUMN_FIELDS:
        column = getattr(chosen, name)
        if column and column not in columns:
            yield name, f"The file has no column “{column}”."
    for name in TRANSFORMS[chosen.transform].needs:
        if not getattr(chosen, name) and not (name == "answer" and chosen.messages):
            label = name.replace("_", " ")
            yield name, f"{TRANSFORMS[chosen.transform].title}: choose the column with the {label}."
    if TRANSFORMS[chosen.transform].continues_prompt:
        if ENTRY_POINT not in columns:
            yield "transform", f"{TRANSFORMS[chosen.transform].title}: the file has no column “{ENTRY_POINT}”."
        if chosen.messages:
            yield "messages", f"{TRANSFORMS[chosen.transform].title}: the prompt must be text, not messages."
    if chosen.answer and chosen.answer in (chosen.prompt, chosen.input) and not chosen.messages:
        yield "answer", "The answer column is also the prompt column."
    if chosen.messages and not chosen.chat:
        yield "chat", NO_PLAIN_MESSAGES
    yield from _follow_up_problems(chosen)
    yield from _template_problems(chosen, columns)


def canonical_rows(row: Row, mapping: ColumnMapping, number: int) -> list[dict[str, Any]]:
    """Map a row of the file to the rows to train on: one row, or one per question if turns are split.

    Row ids are then twice the number in the file, plus 1 for the second question, and the last question has the tests.
    Raises RowProblem.
    """
    mapping = resolved(mapping)
    last = canonical(row, mapping, number)
    if not mapping.splits_turns:
        return [last]
    rows = [last]
    if fields.optional_text(row, mapping.follow_up):
        rows.insert(0, canonical({**row, mapping.follow_up: None}, mapping, number) | {"test_cases": []})
    return [
        {**turn, "row_id": 2 * number + index, "metadata": {**turn["metadata"], FILE_ROW: number, TURN: index + 1}}
        for index, turn in enumerate(rows)
    ]


def canonical(row: Row, mapping: ColumnMapping, number: int) -> dict[str, Any]:
    """Map the row numbered `number` in its file to canonical.SCHEMA, without a split: {"row_id", "prompt": messages,
    "answer": string or None, "test_cases": strings, "metadata": an object of all other columns, difficulty and tags}.

    Raises RowProblem.
    """
    if mapping.transform not in TRANSFORMS:
        raise RowProblem("transform", f"There is no transform “{mapping.transform}”.")
    transform = TRANSFORMS[mapping.transform]
    mapping = resolved(mapping)
    if transform.makes_rows and row.get(mapping.answer) is None:
        mapping = replace(mapping, answer="")
    prompt, response, column = _conversation(row, mapping)
    answer, reasoning = None, ""
    if response is not None:
        extracted = transform.extract(response, column, mapping.answer_after)
        answer, reasoning = extracted.answer, extracted.reasoning
        if transform.continues_prompt:
            answer = f"{row[mapping.prompt]}{response.rstrip()}"
        if not normalised(answer, ignore_case=True, ignore_punctuation=True):
            raise RowProblem("empty_answer", f"“{column}” has only spaces and punctuation as an answer.", column)
    return {
        "row_id": number,
        "prompt": prompt,
        "answer": answer,
        "test_cases": tests(row, mapping),
        "metadata": _metadata(row, mapping, reasoning),
    }


def tests(row: Row, mapping: ColumnMapping) -> list[str]:
    """Return the test cases of a row. Raises RowProblem."""
    transform = TRANSFORMS[mapping.transform]
    if not mapping.test_cases or (transform.makes_rows and row.get(mapping.test_cases) is None):
        return []
    if transform.continues_prompt:
        return fields.check_call(row, mapping.test_cases, ENTRY_POINT)
    return fields.tests(row, mapping.test_cases, needed="test_cases" in transform.needs)


def prompt_text(prompt: Sequence[Mapping[str, str]]) -> str:
    """Return the prompt's text without the system prompt, by which rows are compared."""
    return "\n".join(message["content"] for message in prompt if message["role"] != "system")


def normalised_prompt(prompt: Sequence[Mapping[str, str]]) -> str:
    """Return the prompt's text without differences in white space and case, which is equal for repeated prompts."""
    return " ".join(prompt_text(prompt).split()).casefold()


def _follow_up_problems(mapping: ColumnMapping) -> Iterator[tuple[str, str]]:
    if mapping.follow_up_response and not mapping.follow_up:
        yield "follow_up", "Choose the column with the follow-up question that this column answers."
    elif mapping.one_per_turn and not mapping.follow_up:
        yield "follow_up", "Choose the column with the follow-up question, which becomes a separate row."
    if mapping.follow_up and mapping.messages:
        yield "follow_up", "Messages already contain turns. A follow-up needs a prompt that is text."
    elif mapping.follow_up and not mapping.answer:
        yield "answer", "A follow-up comes after a first answer, so choose the answer column."
    elif mapping.follow_up and not mapping.chat:
        yield "follow_up", "A follow-up needs chat messages, since plain text has no turns."


def _template_problems(mapping: ColumnMapping, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not mapping.template.strip():
        return
    placeholders = templating.placeholder_names(mapping.template)
    available = {templating.PROMPT, *columns}
    for name in placeholders:
        if name not in available:
            yield "template", f"The template uses {{{name}}}, but the file has no such column."
    if not placeholders:
        yield "template", "The template lacks {prompt}, so all prompts would be the same."
    secrets = {mapping.answer, mapping.follow_up_response} - {"", templating.PROMPT}
    for name in placeholders:
        if name in secrets:
            yield "template", f"The template shows {{{name}}} to the model, but that is the answer."


def _conversation(row: Row, mapping: ColumnMapping) -> tuple[list[Message], str | None, str]:
    """Return (prompt, the response that contains the answer, its column)."""
    if mapping.messages:
        return _from_messages(row, mapping)
    prompt = fields.text(row, mapping.prompt, "a prompt")
    appended = fields.optional_text(row, mapping.input) if mapping.input else ""
    if appended:
        prompt = f"{prompt}\n\n{appended}"
    if mapping.template:
        prompt = templating.fill(mapping.template, prompt, row)
    if not mapping.chat:
        prompt = f"{mapping.system_prompt}\n\n{prompt}" if mapping.system_prompt else prompt
        return [{"role": "user", "content": prompt}], *_response(row, mapping.answer)
    prompt_turns = [*_system(mapping), {"role": "user", "content": prompt}]
    follow_up = fields.optional_text(row, mapping.follow_up) if mapping.follow_up else ""
    if not follow_up:
        return prompt_turns, *_response(row, mapping.answer)
    first_answer = {"role": "assistant", "content": fields.text_or_number(row, mapping.answer)}
    turns = [*prompt_turns, first_answer, {"role": "user", "content": follow_up}]
    return turns, *_response(row, mapping.follow_up_response)


def _from_messages(row: Row, mapping: ColumnMapping) -> tuple[list[Message], str | None, str]:
    if not mapping.chat:
        message_text = f"“{mapping.prompt}” contains messages, which can't become plain text."
        raise RowProblem("wrong_type", message_text, mapping.prompt)
    conversation = messages(row, mapping.prompt)
    last_turn = conversation.pop()["content"] if conversation[-1]["role"] == "assistant" else None
    if conversation[0]["role"] != "system":
        conversation = [*_system(mapping), *conversation]
    if mapping.template:
        filled = templating.fill(mapping.template, conversation[-1]["content"], row)
        conversation[-1] = {"role": "user", "content": filled}
    if mapping.answer and mapping.answer != mapping.prompt:
        return conversation, *_response(row, mapping.answer)
    if last_turn is not None and not last_turn.strip():
        raise RowProblem("empty_field", f"The last message in “{mapping.prompt}” is empty.", mapping.prompt)
    return conversation, last_turn, mapping.prompt


def _system(mapping: ColumnMapping) -> list[Message]:
    return [{"role": "system", "content": mapping.system_prompt}] if mapping.system_prompt.strip() else []


def _response(row: Row, column: str) -> tuple[str | None, str]:
    return (fields.text_or_number(row, column) if column else None), column


def _metadata(row: Row, mapping: ColumnMapping, reasoning: str) -> dict[str, Any]:
    used = {mapping.prompt, mapping.input, mapping.answer, mapping.test_cases, mapping.difficulty, mapping.tags}
    added_names: dict[str, str | bool] = {
        "difficulty": mapping.difficulty,
        "tags": mapping.tags,
        REASONING: reasoning,
        FILE_ROW: mapping.splits_turns,
        TURN: mapping.splits_turns,
    }
    taken = RESERVED.union(name for name, is_set in added_names.items() if is_set)
    metadata = {
        _unused_name(name, taken, row) if name in taken else name: value
        for name, value in row.items()
        if name not in used or not name  # a column may have no name
    }
    if mapping.difficulty and (difficulty := fields.difficulty(row, mapping.difficulty)) is not None:
        metadata["difficulty"] = difficulty
    if mapping.tags and (tags := fields.tags(row, mapping.tags)):
        metadata["tags"] = tags
    if reasoning:
        metadata[REASONING] = reasoning
    return metadata


def _unused_name(name: str, taken: frozenset[str], row: Row) -> str:
    while name in taken or name in row:
        name = f"source_{name}"
    return name
