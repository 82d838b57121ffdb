"""Distinguishing parts of similar run names, such as those of a sweep."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest
from operator import itemgetter

SHARED_CHARS = 12
"""Number of leading characters that similar names share. Such names also have the same number of words."""
MAX_DISTINGUISHING_CHARS = 20
"""Number of distinguishing characters, counted from a name's end, that table cells never truncate."""
_BOUNDARY = re.compile(r"(?<=[-_/,=\s])(?<!\de-)")
"""Word boundaries; 1e-06 is one word."""

Parts = list[tuple[str, str]]
"""Alternating parts of a name, as pairs: (shared with similar names, distinguishing)."""


def distinguish(names: Iterable[str]) -> dict[str, Parts]:
    """Split each name that is similar to another into parts. Names that are unlike any other are omitted."""
    groups = defaultdict[tuple[str, int], dict[str, list[str]]](dict)
    for name in names:
        tokens = [name[:SHARED_CHARS], *_BOUNDARY.split(name[SHARED_CHARS:])]
        groups[tokens[0], len(tokens)][name] = tokens
    parts: dict[str, Parts] = {}
    for group in groups.values():
        is_distinguishing = [len(set(column)) > 1 for column in zip(*group.values(), strict=True)]
        parts |= {name: _parts(tokens, is_distinguishing) for name, tokens in group.items() if any(is_distinguishing)}
    return parts


def own_words(parts: Parts) -> str:
    """Join a name's distinguishing parts, for a table cell or label with little room."""
    return " ".join(distinguishing.strip("-_/,= ") for _, distinguishing in parts if distinguishing)


def _parts(tokens: Sequence[str], is_distinguishing: Sequence[bool]) -> Parts:
    """Group a name's words into shared and distinguishing parts. The first word is always shared."""
    groups = groupby(zip(tokens, is_distinguishing, strict=True), key=itemgetter(1))
    texts = ["".join(token for token, _ in group) for _, group in groups]
    pairs = list(zip_longest(texts[::2], texts[1::2], fillvalue=""))
    parts, room = Parts(), MAX_DISTINGUISHING_CHARS
    while pairs and room:
        shared_text, distinguishing = pairs.pop()
        truncated_length = max(0, len(distinguishing) - room)
        parts.insert(0, (shared_text + distinguishing[:truncated_length], distinguishing[truncated_length:]))
        room -= len(distinguishing) - truncated_length
    parts[0] = ("".join(chain(*pairs)) + parts[0][0], parts[0][1])
    return parts
