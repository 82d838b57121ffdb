"""The verb `render`: what a mapping makes of some rows, down to the exact text that a model is given.

A page asks for it at each keystroke, so pyarrow and tokenizers are loaded only where a row needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controlplane.datasets.reader import files, formats, row_function
from controlplane.datasets.reader.chat import Renderer
from controlplane.datasets.reader.chat_templates import TemplateProblem
from controlplane.datasets.reader.excerpts import cut, visible
from controlplane.datasets.reader.fields import RowProblem
from controlplane.datasets.reader.mapping import ColumnMapping, canonical, resolved
from controlplane.datasets.reader.problems import FileProblem
from controlplane.datasets.reader.records import Rewrite, RowSource

ROWS = 8
LOOKED_AT = 1_000
"""Records in which so many readable rows are looked for."""
LONGEST = 20_000
"""Characters of a text that are shown."""


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"mapping": {...}, "rows": [row, ...] or None for the first ones of SOURCE in full, "tokenizer": folder or None,
    "backend": as in check_file}
    -> {"rows": [{"messages", "text", "tokens", "answer", "test_cases", "metadata", "problem"}], "problem": str}.

    "problem" of all: why the tokenizer can't be used; rows are then shown without it. Of a row: why it can't be made.
    """
    mapping = resolved(ColumnMapping.from_dict(arguments["mapping"]))
    tokenizer = arguments.get("tokenizer")
    renderer, problem = Renderer(None), ""
    try:
        if tokenizer:
            renderer = Renderer(Path(tokenizer))
    except TemplateProblem as error:
        problem = str(error)
    rows = arguments.get("rows")
    try:
        with row_function.of(mapping, arguments.get("backend")) as rewrite:
            taken: Sequence[Any] = list(_first(folder, rewrite)) if rows is None else rows[:ROWS]
    except FileProblem as error:
        return {"rows": [], "problem": error.message}
    return {"rows": [_rendered(row, number, mapping, renderer) for number, row in enumerate(taken)], "problem": problem}


def _first(folder: Path, rewrite: Rewrite | None) -> Iterator[dict[str, Any] | str]:
    """The first rows that can be read; where a function of the mapping fails or leaves one out, why."""
    source = folder / files.SOURCE
    found = 0
    for record in RowSource(source, formats.detect(source), rewrite).read():
        why = next((each.message for each in record.problems if each.kind in row_function.KINDS), "")
        if record.row is not None or why:
            yield record.row or why
            found += 1
        if found == ROWS or record.number >= LOOKED_AT:
            return


def _rendered(row: Any, number: int, mapping: ColumnMapping, renderer: Renderer) -> dict[str, Any]:
    fields: dict[str, Any] = {"messages": [], "answer": None, "test_cases": [], "metadata": {}}
    text, tokens, problem = "", None, ""
    try:
        if isinstance(row, str):
            raise RowProblem("transform", row)
        if not isinstance(row, dict):
            raise RowProblem("not_an_object", "This is not a row: a row has named fields.")
        row = canonical(row, mapping, number)
        fields = {"messages": row["prompt"], **{name: row[name] for name in ("answer", "test_cases", "metadata")}}
        text, tokens = renderer.render(row["prompt"], chat=mapping.chat)
    except (RowProblem, TemplateProblem) as error:
        problem = visible(str(error))
    return {**{name: cut(value, LONGEST) for name, value in fields.items()}, **_shown(text, tokens), "problem": problem}


def _shown(text: str, tokens: int | None) -> dict[str, Any]:
    return {"text": cut(text, LONGEST), "tokens": tokens}
