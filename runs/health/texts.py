"""Signs of reward hacking in the completions themselves: repetitive text and empty text."""

from __future__ import annotations

from collections.abc import Iterable

GRAM = 4
"""Words per unit; in text without spaces, groups of four characters."""
FEWEST = 24
"""Units; shorter texts can't be judged."""
LONGEST = 4000
"""Characters from the end, where completions degenerate."""


def repeats(text: str) -> bool:
    """Whether more than half of the text repeats earlier text, in sequences of four words."""
    tail = text[-LONGEST:]
    words = tail.split()
    if len(words) * 12 < len(tail):  # hardly any spaces
        words = [tail[i : i + 2] for i in range(0, len(tail) - 1, 2)]
    grams = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return len(grams) >= FEWEST and len(set(grams)) < len(grams) / 2


def count(texts: Iterable[str]) -> tuple[int, int, int]:
    """Counts of texts: (read, repeating, empty)."""
    sample = list(texts)
    return len(sample), sum(map(repeats, sample)), sum(not text.strip() for text in sample)
