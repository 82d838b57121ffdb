"""Mapping of an uploaded row to a canonical one: the columns of prompt and answer, and their formatting.

This is plain Python without side effects: the child maps whole files with it, and forms use it for validation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from controlplane.catalogue.datasets.reader.columns import choices, code_tests, fields, templating
from controlplane.catalogue.datasets.reader.columns.conversations import NO_IMAGES, Message, check_images, messages
from controlplane.catalogue.datasets.reader.columns.fields import Row, RowProblem
from controlplane.catalogue.datasets.reader.columns.paths import value_of
from controlplane.catalogue.datasets.reader.columns.transforms import COLUMNS, ENTRY_POINT, TRANSFORMS
from controlplane.catalogue.datasets.reader.parsing.records import IMAGE_WORDS
from workers.rewards.entries.answer import normalised
from workers.rewards.extract import OTHER_ANSWERS

RESERVED = frozenset(
    (
        *("row", "prompt", "answer", "test_cases", "prompts", "completion", "completions", "completion_ids"),
        *("image", "images", "tools", "trainer_state", "log_extra", "log_metric", "environments"),
        *("chat_template_kwargs", OTHER_ANSWERS),
    )
)
"""Names that have a meaning for rewards or TRL; columns with these names get the prefix `source_`."""
COLUMN_FIELDS = (
    *("prompt", "input", "choices", "system", "answer", "test_cases", "difficulty", "tags"),
    *("follow_up", "follow_up_response"),
)
"""Fields of a mapping that name a column, or a dotted path into one."""
NO_PLAIN_MESSAGES = "Messages need a chat template, so they can't become plain text."
REASONING = "reasoning"
LAST_TURN = "last_turn"
"""Metadata with the assistant's last message if it isn't part of the prompt and another column has the answer."""
IMAGE_MARKS = ("<image>", "<video>", "<audio>", "<img ", "<|image_pad|>", "<|vision_start|>", "<image_1>")
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
    choices: str = ""
    """Column of a multiple-choice question's choices, which are put below it with letters."""
    numbering: str = ""
    """How the answer names the right choice, one of choices.NUMBERINGS; it becomes a letter."""
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
    system: str = ""
    """Column of each row's own system prompt, which precedes `system_prompt`."""
    system_prompt: str = ""
    template: str = ""
    """User's message with {prompt} and {column} placeholders; "" for the prompt alone."""
    chat: bool = True
    """True if the prompt uses the model's chat template, False if it is plain text for a base model."""
    metadata: str = ""
    """Dotted paths, separated by commas, whose values become metadata of their own, named as the path's last part or as
    the whole path with underscores if another path or a column has that name."""
    leave_out: bool = False
    """True to leave out rows that don't fit the mapping; only on request, so that rows never vanish silently."""
    code: str = ""
    """Source of the function of a CUSTOM transform."""
    drop_duplicates: bool = False
    """True to keep only the first row of each prompt, ignoring white space and case."""

    @property
    def has_prompt(self) -> bool:
        """True if prompts come from a column or, such as those made of numbers, from the template alone."""
        return bool(self.prompt or templating.placeholder_names(self.template))

    @property
    def metadata_paths(self) -> list[str]:
        return [path for part in self.metadata.split(",") if (path := part.strip())]

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
    """Return a mapping with columns from its transform: all of them if that makes rows, otherwise those left unset."""
    transform = TRANSFORMS.get(mapping.transform)
    if transform and transform.makes_rows:
        columns: dict[str, Any] = dict.fromkeys((*COLUMN_FIELDS, "answer_after"), "") | dict(transform.columns)
        return replace(mapping, **columns)
    defaults = transform.columns if transform else {}
    # Messages include their answers.
    unset = [name for name in defaults if not getattr(mapping, name) and not (name == "answer" and mapping.messages)]
    changes: dict[str, Any] = {name: defaults[name] for name in unset}
    return replace(mapping, **changes) if changes else mapping


def checked_part(mapping: ColumnMapping) -> ColumnMapping:
    """Return only the parts of a mapping that a file's check depends on: not the text around prompts, which would make
    all of them similar, nor difficulty and tags, which only the import reads. Columns in a template stay."""
    mapping = resolved(mapping)
    return replace(
        mapping,
        system_prompt="",
        template=_columns_in_template(mapping) if mapping.prompt else mapping.template,
        metadata="",
        difficulty="",
        tags="",
        chat=True,
        leave_out=False,
        drop_duplicates=False,
    )


def _columns_in_template(mapping: ColumnMapping) -> str:
    names = templating.placeholder_names(mapping.template)
    return "\n".join(f"{{{name}}}" for name in names) if {*names} - {templating.PROMPT} else ""


def problems(mapping: ColumnMapping, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (mapping field, sentence) for each error of a mapping for a file with these columns."""
    if mapping.transform not in TRANSFORMS:
        yield "transform", f"There is no transform “{mapping.transform}”."
        return
    mapping = resolved(mapping)
    if TRANSFORMS[mapping.transform].makes_rows:
        if mapping.messages and not mapping.chat:
            yield "chat", NO_PLAIN_MESSAGES
        return
    if not mapping.has_prompt:
        yield "prompt", "Choose the column with the prompt, or write a template with the columns that make it."
    named = [(name, getattr(mapping, name)) for name in COLUMN_FIELDS]
    for name, column in (*named, *(("metadata", path) for path in mapping.metadata_paths)):
        if column and column not in columns:
            yield name, f"The file has no column “{column}”."
    if mapping.numbering not in choices.NUMBERINGS:
        yield "numbering", f"There is no numbering “{mapping.numbering}”."
    if (mapping.choices or mapping.numbering) and not mapping.answer:
        yield "answer", "Choose the column that names the right choice."
    for name in TRANSFORMS[mapping.transform].required_fields:
        if not getattr(mapping, name) and not (name == "answer" and mapping.messages):
            label = name.replace("_", " ")
            yield name, f"{TRANSFORMS[mapping.transform].title}: choose the column with the {label}."
    if TRANSFORMS[mapping.transform].continues_prompt:
        if ENTRY_POINT not in columns:
            yield "transform", f"{TRANSFORMS[mapping.transform].title}: the file has no column “{ENTRY_POINT}”."
        if mapping.messages:
            yield "messages", f"{TRANSFORMS[mapping.transform].title}: the prompt must be text, not messages."
    if mapping.answer and mapping.answer in (mapping.prompt, mapping.input) and not mapping.messages:
        yield "answer", "The answer column is also the prompt column."
    if mapping.messages and not mapping.chat:
        yield "chat", NO_PLAIN_MESSAGES
    yield from _follow_up_problems(mapping)
    yield from _template_problems(mapping, columns)


def warnings(mapping: ColumnMapping) -> list[str]:
    """List sentences about a valid mapping that may have unwanted results."""
    secrets = {mapping.answer, mapping.follow_up_response} - {"", templating.PROMPT}
    return [
        f"The template shows {{{name}}} to the model, and that is the answer."
        for name in templating.placeholder_names(mapping.template)
        if name in secrets
    ]


def canonical_rows(row: Row, mapping: ColumnMapping, number: int) -> list[dict[str, Any]]:
    """Map a row of the file to the rows to train on: one row, or one per question if turns are split.

    Row ids are then twice the number in the file, plus 1 for the second question, and the last question has the tests.
    Raises RowProblem when `canonical` does.
    """
    mapping = resolved(mapping)
    whole_row = canonical(row, mapping, number)
    if not mapping.splits_turns:
        return [whole_row]
    rows = [whole_row]
    if fields.optional_text(row, mapping.follow_up):
        rows.insert(0, canonical({**row, mapping.follow_up: None}, mapping, number) | {"test_cases": []})
    return [
        {**turn, "row_id": 2 * number + index, "metadata": {**turn["metadata"], FILE_ROW: number, TURN: index + 1}}
        for index, turn in enumerate(rows)
    ]


def canonical(row: Row, mapping: ColumnMapping, number: int) -> dict[str, Any]:
    """Map the row numbered `number` in its file to canonical.SCHEMA, without a split: {"row_id", "prompt": messages,
    "answer": string or None, "test_cases": strings, "metadata": an object of other columns, difficulty, tags,
    reasoning, further right answers and an assistant's last turn}.

    Raises RowProblem if the transform is unknown, or if a value that the mapping needs is missing or unusable.
    """
    if mapping.transform not in TRANSFORMS:
        raise RowProblem("transform", f"There is no transform “{mapping.transform}”.")
    transform = TRANSFORMS[mapping.transform]
    mapping = resolved(mapping)
    if transform.makes_rows and row.get(mapping.answer) is None:
        mapping = replace(mapping, answer="")
    check_images(row)
    prompt, responses, column, last_turn = _conversation(row, mapping)
    answers, added = list[str](), {LAST_TURN: last_turn} if last_turn else {}
    for response in responses:
        extracted = transform.extract(response, column, mapping.answer_after)
        answer = extracted.answer
        if transform.continues_prompt:
            answer = f"{value_of(row, mapping.prompt)}{response.rstrip()}"
        if normalised(answer, ignore_case=True, ignore_punctuation=True):
            answers.append(answer)
        if extracted.reasoning:
            added.setdefault(REASONING, extracted.reasoning)
    if responses and not answers:
        raise RowProblem("empty_answer", f"“{column}” has only spaces and punctuation as an answer.", column)
    return {
        "row_id": number,
        "prompt": prompt,
        "answer": answers[0] if answers else None,
        "test_cases": tests(row, mapping),
        "metadata": _metadata(row, mapping, added | ({OTHER_ANSWERS: answers[1:]} if answers[1:] else {})),
    }


def tests(row: Row, mapping: ColumnMapping) -> list[str]:
    """Return the test cases of a row. Raises RowProblem if they are unusable, or if required ones are missing."""
    transform = TRANSFORMS[mapping.transform]
    if not mapping.test_cases or (transform.makes_rows and value_of(row, mapping.test_cases) is None):
        return []
    if transform.continues_prompt:
        return fields.check_call(row, mapping.test_cases, ENTRY_POINT)
    return code_tests.tests(row, mapping.test_cases, is_required="test_cases" in transform.required_fields)


def prompt_text(prompt: Sequence[Mapping[str, str]]) -> str:
    """Return the text by which rows are compared: that of all messages of the prompt except the system's."""
    return "\n".join(message["content"] for message in prompt if message["role"] != "system")


def normalised_prompt(prompt: Sequence[Mapping[str, str]]) -> str:
    """Return the prompt's text with normalised white space and case, which is equal for repeated prompts."""
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


class _Conversation(NamedTuple):
    """Prompt of a row, the responses that contain its right answers, their column, and a turn that was left out."""

    prompt: list[Message]
    responses: list[str]
    column: str
    last_turn: str = ""


def _conversation(row: Row, mapping: ColumnMapping) -> _Conversation:
    if mapping.messages:
        return _from_messages(row, mapping)
    prompt = fields.text(row, mapping.prompt, "a prompt") if mapping.prompt else ""
    input_text = fields.optional_text(row, mapping.input) if mapping.input else ""
    if input_text:
        prompt = f"{prompt}\n\n{input_text}"
    prompt = _written(row, mapping, prompt)
    if not mapping.chat:
        prompt = "\n\n".join([*(turn["content"] for turn in _system(row, mapping)), prompt])
        return _Conversation([{"role": "user", "content": prompt}], *_responses(row, mapping, mapping.answer))
    prompt_turns = [*_system(row, mapping), {"role": "user", "content": prompt}]
    follow_up = fields.optional_text(row, mapping.follow_up) if mapping.follow_up else ""
    if not follow_up:
        return _Conversation(prompt_turns, *_responses(row, mapping, mapping.answer))
    first_answer = {"role": "assistant", "content": fields.text_or_number(row, mapping.answer)}
    turns = [*prompt_turns, first_answer, {"role": "user", "content": follow_up}]
    return _Conversation(turns, *_responses(row, mapping, mapping.follow_up_response))


def _written(row: Row, mapping: ColumnMapping, prompt: str) -> str:
    """Return a prompt with its choices below it, in the template."""
    if mapping.choices:
        prompt = choices.below(prompt, choices.choices_of(row, mapping.choices)[0])
    prompt = templating.fill(mapping.template, prompt, row) if mapping.template else prompt
    if any(mark in prompt for mark in IMAGE_MARKS) and not IMAGE_WORDS.isdisjoint(row):
        raise RowProblem("images", f"The prompt has a place for an image, but {NO_IMAGES}.", mapping.prompt)
    return prompt


def _from_messages(row: Row, mapping: ColumnMapping) -> _Conversation:
    if not mapping.chat:
        message_text = f"“{mapping.prompt}” contains messages, which can't become plain text."
        raise RowProblem("wrong_type", message_text, mapping.prompt)
    conversation = messages(row, mapping.prompt)
    last_response = conversation.pop()["content"] if conversation[-1]["role"] == "assistant" else None
    own = conversation.pop(0)["content"] if conversation[0]["role"] == "system" else ""
    conversation = [*_system(row, mapping, own), *conversation]
    conversation[-1] = {"role": "user", "content": _written(row, mapping, conversation[-1]["content"])}
    if mapping.answer and mapping.answer != mapping.prompt:
        return _Conversation(conversation, *_responses(row, mapping, mapping.answer), last_response or "")
    if last_response is not None and not last_response.strip():
        raise RowProblem("empty_field", f"The last message in “{mapping.prompt}” is empty.", mapping.prompt)
    return _Conversation(conversation, [] if last_response is None else [last_response], mapping.prompt)


def _system(row: Row, mapping: ColumnMapping, first: str = "") -> list[Message]:
    """Return the system's message: the messages' own text `first`, the row's and the mapping's, each only once."""
    own = fields.optional_text(row, mapping.system) if mapping.system else ""
    parts = list[str]()
    for part in (first, own, mapping.system_prompt):
        if part.strip() and not any(part.strip() in earlier for earlier in parts):
            parts.append(part)
    text = "\n\n".join(parts)
    return [{"role": "system", "content": text}] if text else []


def _responses(row: Row, mapping: ColumnMapping, column: str) -> tuple[list[str], str]:
    if column and column == mapping.answer and (mapping.choices or mapping.numbering):
        return choices.right_letters(row, column, mapping.choices, mapping.numbering), column
    return (fields.answers(row, column) if column else []), column


def _metadata(row: Row, mapping: ColumnMapping, added: Mapping[str, Any]) -> dict[str, Any]:
    used_columns = {mapping.prompt, mapping.input, mapping.answer, mapping.test_cases, mapping.difficulty, mapping.tags}
    added_names: dict[str, str | bool] = {
        "difficulty": mapping.difficulty,
        "tags": mapping.tags,
        **dict.fromkeys(added, True),
        FILE_ROW: mapping.splits_turns,
        TURN: mapping.splits_turns,
    }
    reserved_names = RESERVED.union(name for name, is_set in added_names.items() if is_set)
    metadata = {
        _unused_name(name, reserved_names, row) if name in reserved_names else name: value
        for name, value in row.items()
        if name not in used_columns or not name  # a column may have no name
    }
    if mapping.difficulty and (difficulty := fields.difficulty(row, mapping.difficulty)) is not None:
        metadata["difficulty"] = difficulty
    if mapping.tags and (tags := fields.tags(row, mapping.tags)):
        metadata["tags"] = tags
    names = [path.rpartition(".")[2] for path in mapping.metadata_paths]
    for path in mapping.metadata_paths:
        name = path.rpartition(".")[2]
        if name in row or names.count(name) > 1:
            name = path.replace(".", "_")
        metadata.setdefault(
            _unused_name(name, reserved_names, row) if name in reserved_names else name, value_of(row, path)
        )
    return {**metadata, **added}


def _unused_name(name: str, reserved_names: frozenset[str], row: Row) -> str:
    while name in reserved_names or name in row:
        name = f"source_{name}"
    return name
