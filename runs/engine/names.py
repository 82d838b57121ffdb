"""Distinguishing parts of similar run names, such as those of a sweep."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest
from operator import itemgetter

ALIKE = 12
"""Number of first characters that similar names share. They also have the same number of words."""
MAX_OWN = 20
"""Number of a name's last distinguishing characters that table cells never truncate; earlier ones may be truncated."""
_BOUNDARY = re.compile(r"(?<=[-_/,=\s])(?<!\de-)")
"""Word boundaries; 1e-06 is one word."""

Parts = list[tuple[str, str]]
"""Alternating parts of a name, as pairs: (shared with similar names, distinguishing)."""


def distinguish(names: Iterable[str]) -> dict[str, Parts]:
    """Split each name that is similar to another into parts. Names that are unlike any other are omitted."""
    kinds = defaultdict[tuple[str, int], dict[str, list[str]]](dict)
    for name in names:
        tokens = [name[:ALIKE], *_BOUNDARY.split(name[ALIKE:])]
        kinds[tokens[0], len(tokens)][name] = tokens
    parts: dict[str, Parts] = {}
    for kind in kinds.values():
        differs = [len(set(column)) > 1 for column in zip(*kind.values(), strict=True)]
        parts |= {name: _parts(tokens, differs) for name, tokens in kind.items() if any(differs)}
    return parts


def own_words(parts: Parts) -> str:
    """Join a name's distinguishing parts, for a table cell or label with little room."""
    return " ".join(own.strip("-_/,= ") for _, own in parts if own)


def _parts(tokens: Sequence[str], differs: Sequence[bool]) -> Parts:
    """Group a name's words into shared and distinguishing parts. The first word is always shared."""
    groups = groupby(zip(tokens, differs, strict=True), key=itemgetter(1))
    texts = ["".join(token for token, _ in group) for _, group in groups]
    pairs = list(zip_longest(texts[::2], texts[1::2], fillvalue=""))
    parts, room = Parts(), MAX_OWN
    while pairs and room:
        shared, own = pairs.pop()
        cut = max(0, len(own) - room)
        parts.insert(0, (shared + own[:cut], own[cut:]))
        room -= len(own) - cut
    parts[0] = ("".join(chain(*pairs)) + parts[0][0], parts[0][1])
    return parts
