"""Prompt templates: text with placeholders such as {prompt} and {column}, which are filled by name only.

They aren't format strings: a placeholder is a plain name, which can't access attributes. {{ and }} are literal braces,
and {} is literal too, so \\boxed{} needs no escaping.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from controlplane.catalogue.datasets.reader.columns.paths import value_of

PROMPT = "prompt"
"""Placeholder for the prompt from its columns."""
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}\n]{1,200})\}")


def placeholder_names(template: str) -> list[str]:
    """List the names of the placeholders in order, each once."""
    return list(dict.fromkeys(piece for is_placeholder, piece in _pieces(template) if is_placeholder))


def fill(template: str, prompt: str, row: Mapping[str, Any]) -> str:
    """Return the template with {prompt} replaced by `prompt` and other placeholders by columns of `row`, if any."""
    return "".join(
        (prompt if piece == PROMPT else as_text(value_of(row, piece))) if is_placeholder else piece
        for is_placeholder, piece in _pieces(template)
    )


def as_text(value: Any) -> str:
    """Return a column's value as text for a prompt."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=32)
def _pieces(template: str) -> list[tuple[bool, str]]:
    """Split a template into pieces: (whether it is a placeholder, the placeholder's name or the literal text)."""
    pieces, position = list[tuple[bool, str]](), 0
    for match in _PLACEHOLDER.finditer(template):
        name = match[1]
        pieces += [
            (False, template[position : match.start()]),
            (False, match[0][0]) if name is None else (True, name.strip()),
        ]
        position = match.end()
    return [*pieces, (False, template[position:])]
