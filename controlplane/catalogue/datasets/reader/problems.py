"""Problems of a file's rows: their kinds, in words, and their location.

An `error` makes a row unusable; a `warning` doesn't. Rows with an error are bad rows: people decide whether they are
dropped or nothing is imported.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ERROR, WARNING = "error", "warning"
KEPT = 1000
"""Problems in a report; the file PROBLEMS lists all of them."""


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem. `advice` names the remedy."""

    title: str
    advice: str
    level: str


@dataclass(frozen=True)
class DataProblem:
    """A problem of one row.

    `line`: line of the file, from 1; for JSON lists and Parquet the row's number, from 1; 0: the file as a whole.
    `column`: character in that line or in the code of `field`, from 1; 0: no single place. `byte`: offset in the
    (uncompressed) file, -1: unknown. `code_line`: line inside the code in `field`, from 1; 0: not about code.
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
    """The file as a whole can't be read. `kind` is one of KINDS."""

    def __init__(self, kind: str, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.advice = advice or KINDS[kind].advice

    def __reduce__(self) -> tuple[Any, ...]:
        return FileProblem, (self.kind, self.message, self.advice)  # from one process to another

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "message": self.message, "advice": self.advice}


_ERRORS = {
    # The file as a whole.
    "empty_file": ("Empty file", "Check the export that wrote it: there is nothing to train on."),
    "other_format": (
        "Wrong file type",
        "Export the rows as JSON Lines, a JSON list, CSV, TSV or Parquet and upload that.",
    ),
    "other_encoding": ("Another encoding", "Save the file as UTF-8 and upload it again."),
    "broken_gzip": (
        "Broken gzip",
        "The transfer or the export was cut off. Compress the file again, or upload it uncompressed.",
    ),
    "too_large": ("Too large when unpacked", "Split the file, or upload a part of it."),
    "broken_parquet": (
        "Broken Parquet",
        "The transfer or the export was cut off. Write the file again and upload that.",
    ),
    "refused_parquet": (
        "Parquet columns that can't be read",
        "Write the file again with plain texts, numbers and lists of them.",
    ),
    "too_many_columns": ("Too many columns", "Keep the columns that training needs, the same in every row."),
    "too_many_rows": ("Too many rows", "Split the file, or train on a part of it."),
    "limits": ("Too much for the check", "Split the file into smaller ones."),
    # What keeps a row from being read.
    "malformed_json": ("Malformed JSON", "Write the file with a JSON library instead of by hand: one row a line."),
    "cut_off": ("Cut off", "The row is incomplete: check whether the export or the transfer ended early."),
    "not_an_object": ("Not an object", 'Each row is an object with named fields: {"prompt": …, "answer": …}.'),
    "empty_object": ("Object without fields", "Drop the row, or fill it in."),
    "invalid_utf8": ("Invalid UTF-8", "Save the file as UTF-8; this text is in another encoding, or damaged."),
    "nul": ("NUL character", "Remove the character: many tools end the text there."),
    "lone_surrogate": ("Half a character", "The text was cut inside a pair of escapes. Write the row again."),
    "not_a_number": ("NaN or Infinity", "JSON has neither: use null, or leave the field out."),
    "number_range": ("Number out of range", "Write numbers beyond 64 bits as a text."),
    "nesting": ("Nested too deeply", "Flatten the row: training uses texts, numbers and lists of them."),
    "line_too_long": ("Line too long", "Shorten the row, or check whether line breaks between rows are missing."),
    "field_name": ("Field name too long", "Rename the field; its name may be a text by mistake."),
    "field_count": (
        "Wrong number of fields",
        "Put fields with the delimiter or a line break in them in double quotes.",
    ),
    "unclosed_quote": ("Quote without an end", "Close the field's quotes; a quote inside a field is doubled."),
    "field_too_long": ("Field too long", "Shorten the field, or check for an unclosed quote."),
    "damaged_rows": (
        "Damaged Parquet rows",
        "The file is damaged there: write it again, or continue without these rows.",
    ),
    # Errors of a row under a mapping.
    "missing_field": ("Missing field", "Fill the field in, or choose another column for it in the mapping."),
    "empty_field": ("Empty field", "Fill the field in, or drop the row."),
    "wrong_type": ("Wrong type", "Write the field as a text, or choose another column for it in the mapping."),
    "test_cases_type": ("Test cases of a wrong type", "test_cases is a list of texts, each one assertion or test."),
    "message_shape": ("Broken message", "Each message is an object with the texts “role” and “content”."),
    "chat_roles": (
        "Unbalanced chat roles",
        "System first if at all, then user and assistant in turn, and the last message is the user's.",
    ),
    "marker_missing": (
        "Answer without its marker",
        "The mapping takes what follows the marker: add it, or map the whole answer.",
    ),
    "empty_answer": (
        "Empty answer",
        "Nothing is left of the answer once spaces and punctuation are gone: no reward can compare it.",
    ),
    "duplicate_keys": ("Duplicate keys", "Keep one of the two: readers disagree about which of them counts."),
    "code_syntax": ("Code that doesn't parse", "Correct the Python code at the line and column given."),
    "test_syntax": ("A test that doesn't parse", "Correct the test at the line and column given."),
    "transform": ("The transform doesn't fit", "Choose another transform or another column in the mapping."),
}
_WARNINGS = {
    "left_out": ("Left out by the transform", "The function returned None for these rows."),
    "too_many_tokens": (
        "Prompt over the token limit",
        "Runs don't truncate prompts. Shorten it; or, after the import, derive a version without long prompts under "
        "Rows.",
    ),
    "exact_duplicate": ("Duplicate prompt", "Duplicates weigh more in training. The mapping can drop them."),
    "near_duplicate": ("Nearly the same prompt", "Keep one of them, unless the small differences matter."),
    "not_counted": (
        "Tokens not counted",
        "Choose another tokenizer, or check without a limit: prompts were not measured.",
    ),
    "test_needs": (
        "A test that no reward can judge",
        "Tests run in another process than the code: they can only pass and check plain values.",
    ),
    "test_doubts": (
        "A test that inspects the code itself",
        "Let the test define or import its helpers, unless the code has to provide them.",
    ),
    "mixed_schemas": ("Different schema", "Give all rows the same fields and types, or split the file."),
    "passed_over_column": (
        "Column skipped",
        "Write the column as texts, numbers or lists of them if training needs it.",
    ),
    "byte_order_mark": ("Byte order mark", "It was ignored. Save the file as UTF-8 without BOM to remove it."),
}
KINDS: Mapping[str, ProblemKind] = {
    kind: ProblemKind(title, advice, level)
    for level, kinds in ((ERROR, _ERRORS), (WARNING, _WARNINGS))
    for kind, (title, advice) in kinds.items()
}
"""The kinds by DataProblem.kind, in the order of the page."""
