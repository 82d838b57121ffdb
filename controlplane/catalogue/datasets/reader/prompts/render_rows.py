"""The verb `render`, which maps some rows and renders them as the exact text for the model.

Since a page requests this at each keystroke, pyarrow and tokenizers are loaded only if they are needed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns import row_function
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical_rows, resolved
from controlplane.catalogue.datasets.reader.excerpts import cut, visible
from controlplane.catalogue.datasets.reader.parsing import formats
from controlplane.catalogue.datasets.reader.parsing.records import Rewrite, RowSource
from controlplane.catalogue.datasets.reader.problems import FileProblem
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem

PREVIEW_ROWS = 8
MAX_RECORDS = 1_000
"""Maximum number of records that are searched for readable rows."""
MAX_CHARACTERS = 20_000
"""Length to which each string is shortened."""


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Render the first rows of SOURCE: {"mapping": {...}, "tokenizer": folder or None, "backend": as in check_file}
    -> {"rows": [[{"messages", "text", "tokens", "answer", "test_cases", "metadata", "problem"}]], "problem": str}.

    Each row of the file is given as a list of the rows that it becomes: two if turns are split. The outer "problem"
    says why the tokenizer or the file can't be used, and the inner one why a row can't be mapped or rendered.
    """
    mapping = resolved(ColumnMapping.from_dict(arguments["mapping"]))
    tokenizer = arguments.get("tokenizer")
    renderer, problem = ChatRenderer(None), ""
    try:
        if tokenizer:
            renderer = ChatRenderer(Path(tokenizer))
    except TemplateProblem as error:
        problem = str(error)
    try:
        with row_function.open_function(mapping, arguments.get("backend")) as rewrite:
            rows = list(_first_rows(folder, rewrite))
    except FileProblem as error:
        return {"rows": [], "problem": error.message}
    shown = [_render_row(row, number, mapping, renderer) for number, row in enumerate(rows)]
    return {"rows": shown, "problem": problem}


def _first_rows(folder: Path, rewrite: Rewrite | None) -> Iterator[dict[str, Any] | str]:
    """Yield the first readable rows; for a row that the mapping's function left out or failed on, yield the reason."""
    source = folder / files.SOURCE
    count = 0
    for record in RowSource(source, formats.detect(source), rewrite).read():
        why = next((problem.message for problem in record.problems if problem.kind in row_function.KINDS), "")
        if record.row is not None or why:
            yield record.row or why
            count += 1
        if count == PREVIEW_ROWS or record.number >= MAX_RECORDS:
            return


def _render_row(
    row: dict[str, Any] | str, number: int, mapping: ColumnMapping, renderer: ChatRenderer
) -> list[dict[str, Any]]:
    try:
        if isinstance(row, str):
            raise RowProblem("transform", row)
        rows = canonical_rows(row, mapping, number)
    except RowProblem as error:
        no_row: dict[str, Any] = {"prompt": [], "answer": None, "test_cases": [], "metadata": {}}
        return [_to_result(no_row, problem=visible(str(error)))]
    return [_with_text(canonical, mapping, renderer) for canonical in rows]


def _with_text(row: dict[str, Any], mapping: ColumnMapping, renderer: ChatRenderer) -> dict[str, Any]:
    try:
        text, tokens = renderer.render(row["prompt"], chat=mapping.chat)
    except TemplateProblem as error:
        return _to_result(row, problem=visible(str(error)))
    return _to_result(row, text, tokens)


def _to_result(row: dict[str, Any], text: str = "", tokens: int | None = None, *, problem: str = "") -> dict[str, Any]:
    shown = {"messages": row["prompt"], **{name: row[name] for name in ("answer", "test_cases", "metadata")}}
    shown["text"] = text
    return {**{name: cut(value, MAX_CHARACTERS) for name, value in shown.items()}, "tokens": tokens, "problem": problem}
