"""Problems of a file and its rows: their kinds, with titles and advice, and their locations.

An `error` makes a row unusable; a `warning` doesn't. Rows with an error are bad rows: people decide whether to drop
them or to import nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ERROR, WARNING = "error", "warning"
MAX_REPORTED = 1000
"""Maximum number of problems in a report; the file PROBLEMS lists the others too."""


@dataclass(frozen=True)
class ProblemKind:
    """Kind of problem. `advice` names the remedy."""

    title: str
    advice: str
    level: str


@dataclass(frozen=True)
class DataProblem:
    """Problem of a row or of the file.

    `line` is the line of the file (in JSON lists and Parquet the row), from 1, or 0 for the file as a whole. `column`
    is the character in that line or in the code of `field`, from 1, or 0 if there is no single place. `byte` is the
    offset in the uncompressed file, or -1 if unknown. `code_line` is the line of the code in `field`, from 1, or 0.
    """

    line: int
    kind: str
    message: str
    excerpt: str = ""
    column: int = 0
    byte: int = -1
    field: str = ""
    code_line: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class FileProblem(Exception):
    """Problem of a file that can't be read at all. `kind` is one of KINDS."""

    def __init__(self, kind: str, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.advice = advice or KINDS[kind].advice

    def __reduce__(self) -> tuple[Any, ...]:
        return FileProblem, (self.kind, self.message, self.advice)  # for pickling between processes

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "message": self.message, "advice": self.advice}


_ERRORS = {
    # Errors of the file as a whole.
    "empty_file": ("Empty file", "There is nothing to train on. Check the export that wrote the file."),
    "other_format": (
        "Wrong file type",
        "Export the rows as JSON Lines, a JSON list, CSV, TSV or Parquet, and upload that file.",
    ),
    "other_encoding": ("Wrong encoding", "Save the file as UTF-8 and upload it again."),
    "broken_gzip": (
        "Broken gzip",
        "The transfer or the export was interrupted. Compress the file again, or upload it uncompressed.",
    ),
    "too_large": ("Too large when unpacked", "Split the file, or upload only a part of it."),
    "broken_parquet": (
        "Broken Parquet",
        "The transfer or the export was interrupted. Write the file again, and upload the new one.",
    ),
    "refused_parquet": (
        "Parquet columns that can't be read",
        "Write the file again with only strings, numbers and lists of them.",
    ),
    "too_many_columns": ("Too many columns", "Keep only the columns that training needs, the same ones in every row."),
    "too_many_rows": ("Too many rows", "Split the file, or train on only a part of it."),
    "limits": ("Beyond the check's limits", "Split the file into smaller ones."),
    # Errors that keep a row from being read.
    "malformed_json": ("Malformed JSON", "Write the file with a JSON library instead of by hand, one row per line."),
    "cut_off": ("Truncated", "The row is incomplete. Check whether the export or the transfer ended early."),
    "not_an_object": ("Not an object", 'Each row must be an object with named fields: {"prompt": …, "answer": …}.'),
    "empty_object": ("Object without fields", "Drop the row, or fill it in."),
    "invalid_utf8": ("Invalid UTF-8", "Save the file as UTF-8. This text is in another encoding, or damaged."),
    "nul": ("NUL character", "Remove the character, since many tools end the text there."),
    "lone_surrogate": ("Half a character", "The text was truncated inside a pair of escapes. Write the row again."),
    "not_a_number": ("NaN or Infinity", "JSON has neither of them. Use null, or leave the field out."),
    "number_range": ("Number out of range", "Write numbers beyond 64 bits as strings."),
    "nesting": ("Nested too deeply", "Flatten the row. Training uses strings, numbers and lists of them."),
    "line_too_long": ("Line too long", "Shorten the row, or check whether line breaks between rows are missing."),
    "field_name": ("Field name too long", "Rename the field. A value may have become its name by mistake."),
    "field_count": (
        "Wrong number of fields",
        "Put fields that contain the delimiter or a line break in double quotes.",
    ),
    "unclosed_quote": ("Unclosed quote", "Close the field's quotes, and write quotes inside a field twice."),
    "field_too_long": ("Field too long", "Shorten the field, or check for an unclosed quote."),
    "damaged_rows": (
        "Damaged Parquet rows",
        "The file is damaged at these rows. Write it again, or continue without them.",
    ),
    # Errors of a row under a mapping.
    "missing_field": ("Missing field", "Fill the field in, or choose another column for it in the mapping."),
    "empty_field": ("Empty field", "Fill the field in, or drop the row."),
    "wrong_type": ("Wrong type", "Write the field as a string, or choose another column for it in the mapping."),
    "test_cases_type": (
        "Tests that can't be read",
        "Tests are Python code, or inputs with the expected outputs: a list of strings, one text of tests, "
        "{“inputs”, “outputs”}, or a list of {“input”, “output”}. Correct the row, or leave it out.",
    ),
    "message_shape": ("Broken message", "Each message must be an object with the strings “role” and “content”."),
    "chat_roles": (
        "Chat roles out of order",
        "After an optional system message, user and assistant must alternate, beginning with the user. Tool calls and "
        "results may only follow the last question.",
    ),
    "images": (
        "Images aren't trained on",
        "Only text is. Write the file without the rows that need an image, and without the column of images.",
    ),
    "latex_escapes": (
        "LaTeX read as control characters",
        "The file has “\\frac” or the like with one backslash, which JSON reads as a control character. Double the "
        "backslashes in the file (“\\\\frac”), and upload it again.",
    ),
    "marker_missing": (
        "Answer without its marker",
        "The mapping takes the text after the marker. Add the marker, or map the whole answer.",
    ),
    "empty_answer": (
        "Empty answer",
        "Nothing is left of the answer without spaces and punctuation, so no reward can compare it.",
    ),
    "duplicate_keys": ("Duplicate keys", "Keep one of the two, since programs disagree about which one to use."),
    "code_syntax": ("Code that doesn't parse", "Correct the Python code at the given line and column."),
    "test_syntax": ("A test that doesn't parse", "Correct the test at the given line and column."),
    "transform": ("The transform doesn't fit", "Choose another transform or another column in the mapping."),
}
_WARNINGS = {
    "left_out": ("Left out by the transform", "The function returned None for these rows."),
    "too_many_tokens": (
        "Prompt over the token limit",
        "Runs don't truncate prompts. Shorten these, or derive a version without long prompts under Rows after the "
        "import.",
    ),
    "exact_duplicate": ("Duplicate prompt", "Duplicates weigh more in training. The mapping can drop them."),
    "conflicting_answers": (
        "The same prompt with another answer",
        "A reward that compares with the answer contradicts itself there. Keep one row of each prompt, or make the "
        "prompts differ.",
    ),
    "control_characters": (
        "Control characters",
        "They are probably remains of the export. Remove them, and check the text around them.",
    ),
    "chat_tokens": (
        "A chat template's tokens in the prompt",
        "Choose plain text in the mapping, or remove the tokens; otherwise the template is applied twice.",
    ),
    "answer_in_prompt": (
        "The answer is in the prompt",
        "The model needs only to copy it. Remove the answer from the prompt.",
    ),
    "last_turn": (
        "A prompt that begins the answer",
        "The assistant's last message isn't part of the prompt, since runs don't continue it. It is kept in the "
        "metadata; if the model needs it, put its text into the prompt. Choose another column for the answer.",
    ),
    "several_answers": (
        "Several answers, of which any is right",
        "If all of them are needed, or their order matters, join them into one string, or choose another column.",
    ),
    "list_as_text": (
        "A list as text",
        "If the list only wraps the answer, write the answer without brackets and quotes.",
    ),
    "whole_floats": (
        "Whole numbers with “.0”",
        "Tables write them so if a column has empty cells. Write them as whole numbers, or use a reward that compares "
        "numbers.",
    ),
    "tests_as_answer": (
        "Tests as an answer",
        "Rows with tests and rows with answers need mappings of their own. Split the file into one of each.",
    ),
    "unclear_numbering": (
        "Choices that may count from 0 or from 1",
        "Compare a few rows with their right choices, and set the numbering in the mapping.",
    ),
    "image_marks": (
        "The place of an image",
        "Images aren't trained on. Leave out the rows that need one, and remove the mark from the others.",
    ),
    "left_out_parts": (
        "Parts of messages that are left out",
        "Only the texts of messages are used. If the model needs a part, write it into the text.",
    ),
    "near_duplicate": ("Nearly the same prompt", "Keep only one of them, unless the small differences matter."),
    "not_counted": (
        "Tokens not counted",
        "Prompt lengths are unknown. Choose another tokenizer, or use no token limit.",
    ),
    "test_needs": (
        "A test that no reward can judge",
        "Tests and code run in different processes, so tests can only pass and check plain values.",
    ),
    "test_doubts": (
        "A test that inspects the code itself",
        "Define or import helpers in the test, unless the code has to provide them.",
    ),
    "mixed_schemas": ("Different schema", "Give all rows the same fields and types, or split the file."),
    "passed_over_column": (
        "Column skipped",
        "If training needs the column, write it as strings, numbers or lists of them.",
    ),
    "byte_order_mark": ("Byte order mark", "It was ignored. To remove it, save the file as UTF-8 without a BOM."),
}
KINDS: Mapping[str, ProblemKind] = {
    kind: ProblemKind(title, advice, level)
    for level, kinds in ((ERROR, _ERRORS), (WARNING, _WARNINGS))
    for kind, (title, advice) in kinds.items()
}
"""Kinds by DataProblem.kind, in the order in which pages list them."""
