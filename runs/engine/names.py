"""Long names of runs beside each other, as those of a sweep: which parts tell one from the others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest

ALIKE = 12
"""Names that begin with as many equal characters, and have as many words, are of one kind."""
MOST_OWN = 20
"""Characters of a name that no cell cuts; what differs before them is cut like the rest."""
_WORDS = re.compile(r"(?<=[-_/,=\s])(?<!\de-)")
"""Where words begin; 1e-06 is one."""

Parts = list[tuple[str, str]]
"""(what similar names have too, what only this one has), as often as they alternate in the name."""


def distinguish(names: Iterable[str]) -> dict[str, Parts]:
    """The parts of each name that is similar to another; other names are left out."""
    kinds = defaultdict[tuple[str, int], dict[str, list[str]]](dict)
    for name in names:
        words = [name[:ALIKE], *_WORDS.split(name[ALIKE:])]
        kinds[words[0], len(words)][name] = words
    found: dict[str, Parts] = {}
    for kind in kinds.values():
        differs = [len(set(column)) > 1 for column in zip(*kind.values(), strict=True)]
        found |= {name: _parts(words, differs) for name, words in kind.items() if any(differs)}
    return found


def own_words(parts: Parts) -> str:
    """What only this name has, for a place that has no room for more."""
    return " ".join(own.strip("-_/,= ") for _, own in parts if own)


def _parts(words: Sequence[str], differs: Sequence[bool]) -> Parts:
    """The first word never differs."""
    places = groupby(range(len(words)), key=lambda place: differs[place])
    texts = ["".join(words[place] for place in some) for _, some in places]
    pairs = list(zip_longest(texts[::2], texts[1::2], fillvalue=""))
    parts, left = Parts(), MOST_OWN
    while pairs and left:
        shared, own = pairs.pop()
        cut = max(0, len(own) - left)
        parts.insert(0, (shared + own[:cut], own[cut:]))
        left -= len(own) - cut
    parts[0] = ("".join(chain(*pairs)) + parts[0][0], parts[0][1])
    return parts
