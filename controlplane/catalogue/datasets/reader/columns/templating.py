"""A prompt template: text with places such as {prompt} and {column}, filled by looking names up and nothing else.

No format string: a place is a name as a whole, so nothing in it can reach into an object, and {{ and }} are braces.
{} is a pair of braces as well: \\boxed{} needs no care.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

PROMPT = "prompt"
"""The place of what the prompt's columns give."""
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}\n]{1,200})\}")


def places(template: str) -> list[str]:
    """The names in it, each once, in order."""
    return list(dict.fromkeys(piece for is_place, piece in _pieces(template) if is_place))


def fill(template: str, prompt: str, row: Mapping[str, Any]) -> str:
    """`row`'s own columns fill the other places; what a row doesn't have is empty."""
    return "".join(
        (prompt if piece == PROMPT else shown(row.get(piece))) if is_place else piece
        for is_place, piece in _pieces(template)
    )


def shown(value: Any) -> str:
    """A column's value inside a prompt."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=32)
def _pieces(template: str) -> tuple[tuple[bool, str], ...]:
    return tuple(_split(template))


def _split(template: str) -> Iterator[tuple[bool, str]]:
    at = 0
    for found in _PLACE.finditer(template):
        yield False, template[at : found.start()]
        name = found[1]
        yield (False, found[0][0]) if name is None else (True, name.strip())
        at = found.end()
    yield False, template[at:]
