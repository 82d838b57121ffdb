"""The verb `render`: maps some rows and renders them to the exact text for the model.

A page requests it at each keystroke, so pyarrow and tokenizers are loaded only if a row needs them.
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

ROWS = 8
LOOKED_AT = 1_000
"""Maximum records to search for readable rows."""
LONGEST = 20_000
"""Characters shown of a text."""


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Render the first rows of SOURCE: {"mapping": {...}, "tokenizer": folder or None, "backend": as in check_file}
    -> {"rows": [[{"messages", "text", "tokens", "answer", "test_cases", "metadata", "problem"}]], "problem": str}.

    Each row of the file is a list of the rows that it becomes: two if turns are split. The outer "problem" says why the
    tokenizer can't be used (rows are then shown without it), the inner one why a row can't be mapped.
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
        with row_function.opened(mapping, arguments.get("backend")) as rewrite:
            rows = list(_first(folder, rewrite))
    except FileProblem as error:
        return {"rows": [], "problem": error.message}
    return {"rows": [_rendered(row, number, mapping, renderer) for number, row in enumerate(rows)], "problem": problem}


def _first(folder: Path, rewrite: Rewrite | None) -> Iterator[dict[str, Any] | str]:
    """Yield the first readable rows; the reason instead of a row if the mapping's function failed or left it out."""
    source = folder / files.SOURCE
    count = 0
    for record in RowSource(source, formats.detect(source), rewrite).read():
        why = next((problem.message for problem in record.problems if problem.kind in row_function.KINDS), "")
        if record.row is not None or why:
            yield record.row or why
            count += 1
        if count == ROWS or record.number >= LOOKED_AT:
            return


def _rendered(
    row: dict[str, Any] | str, number: int, mapping: ColumnMapping, renderer: ChatRenderer
) -> list[dict[str, Any]]:
    try:
        if isinstance(row, str):
            raise RowProblem("transform", row)
        rows = canonical_rows(row, mapping, number)
    except RowProblem as error:
        no_row: dict[str, Any] = {"prompt": [], "answer": None, "test_cases": [], "metadata": {}}
        return [_shown(no_row, problem=visible(str(error)))]
    return [_with_text(canonical, mapping, renderer) for canonical in rows]


def _with_text(row: dict[str, Any], mapping: ColumnMapping, renderer: ChatRenderer) -> dict[str, Any]:
    try:
        text, tokens = renderer.render(row["prompt"], chat=mapping.chat)
    except TemplateProblem as error:
        return _shown(row, problem=visible(str(error)))
    return _shown(row, text, tokens)


def _shown(row: dict[str, Any], text: str = "", tokens: int | None = None, *, problem: str = "") -> dict[str, Any]:
    shown = {"messages": row["prompt"], **{name: row[name] for name in ("answer", "test_cases", "metadata")}}
    shown["text"] = text
    return {**{name: cut(value, LONGEST) for name, value in shown.items()}, "tokens": tokens, "problem": problem}
