"""The verb `render`: what a mapping makes of some rows, down to the exact text that a model is given.

A page asks for it at each keystroke, so pyarrow and tokenizers are loaded only where a row needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controlplane.datasets.reader import files, formats, records
from controlplane.datasets.reader.chat import Renderer
from controlplane.datasets.reader.chat_templates import TemplateProblem
from controlplane.datasets.reader.excerpts import cut, visible
from controlplane.datasets.reader.fields import RowProblem
from controlplane.datasets.reader.mapping import ColumnMapping, canonical, resolved
from controlplane.datasets.reader.problems import FileProblem

ROWS = 8
LOOKED_AT = 1_000
"""Records in which so many readable rows are looked for."""
LONGEST = 20_000
"""Characters of a text that are shown."""


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"mapping": {...}, "rows": [row, ...] or None for the first ones of SOURCE in full, "tokenizer": folder or None}
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
        taken: Sequence[Any] = list(_first(folder)) if rows is None else rows[:ROWS]
    except FileProblem as error:
        return {"rows": [], "problem": error.message}
    return {"rows": [_rendered(row, number, mapping, renderer) for number, row in enumerate(taken)], "problem": problem}


def _first(folder: Path) -> Iterator[dict[str, Any]]:
    source = folder / files.SOURCE
    found = 0
    for record in records.read(source, formats.detect(source)):
        if record.row is not None:
            yield record.row
            found += 1
        if found == ROWS or record.number >= LOOKED_AT:
            return


def _rendered(row: Any, number: int, mapping: ColumnMapping, renderer: Renderer) -> dict[str, Any]:
    fields: dict[str, Any] = {"messages": [], "answer": None, "test_cases": [], "metadata": {}}
    text, tokens, problem = "", None, ""
    try:
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
