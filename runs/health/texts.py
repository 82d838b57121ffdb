"""Signs of reward hacking in the completions themselves: text that mostly repeats itself, and none at all."""

from __future__ import annotations

from collections.abc import Iterable

GRAM = 4
"""Words that make one unit; of text without spaces between words, characters in fours of these."""
FEWEST = 24
"""Units: of a short text nothing can be told."""
LONGEST = 4000
"""Characters, from the end: where a completion degenerates."""


def repeats(text: str) -> bool:
    """More than half of it has been there before, counted in runs of four words."""
    tail = text[-LONGEST:]
    words = tail.split()
    if len(words) * 12 < len(tail):  # no spaces to speak of
        words = [tail[i : i + 2] for i in range(0, len(tail) - 1, 2)]
    grams = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return len(grams) >= FEWEST and len(set(grams)) < len(grams) / 2


def count(texts: Iterable[str]) -> tuple[int, int, int]:
    """(read, repeating, empty)"""
    found = list(texts)
    return len(found), sum(map(repeats, found)), sum(not text.strip() for text in found)
