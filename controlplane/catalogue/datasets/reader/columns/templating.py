"""A prompt template: text with placeholders such as {prompt} and {column}, filled by name only.

It isn't a format string: a placeholder is a plain name, which can't access attributes. {{ and }} are braces, and so is
{}, so \\boxed{} needs no escaping.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

PROMPT = "prompt"
"""The placeholder for the prompt from its columns."""
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}\n]{1,200})\}")


def placeholder_names(template: str) -> list[str]:
    """List the distinct names of the placeholders, in order."""
    return list(dict.fromkeys(piece for is_place, piece in _pieces(template) if is_place))


def fill(template: str, prompt: str, row: Mapping[str, Any]) -> str:
    """Fill the template: {prompt} with `prompt`, others with `row`'s columns; missing ones are empty."""
    return "".join(
        (prompt if piece == PROMPT else shown(row.get(piece))) if is_place else piece
        for is_place, piece in _pieces(template)
    )


def shown(value: Any) -> str:
    """Format a column's value as text for a prompt."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=32)
def _pieces(template: str) -> list[tuple[bool, str]]:
    """Split a template into (whether it is a placeholder, its name or the text)."""
    pieces, at = list[tuple[bool, str]](), 0
    for match in _PLACE.finditer(template):
        name = match[1]
        pieces += [
            (False, template[at : match.start()]),
            (False, match[0][0]) if name is None else (True, name.strip()),
        ]
        at = match.end()
    return [*pieces, (False, template[at:])]
