"""Signs of decay in completions: repetitive, empty, identical and nonsensical text."""

import re
from collections import Counter
from collections.abc import Iterable

GRAM = 4
"""Words per n-gram; in text without spaces, pairs of characters are used as words."""
FEWEST = 24
"""Minimum number of n-grams for judging a text."""
FEWEST_WORDS = 10
ODD = 0.15
"""Share of odd words above which a text is gibberish. Prose, code and formulas have a few per cent."""
LONG = 80
"""Minimum number of characters for counting identical texts, since short answers are often the same."""
_UNSPEAKABLE = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}|^[bcdfghjklmnpqrstvwxz]{5,}$|[a-z]{30}")
LONGEST = 4000
"""Number of characters read from the end of a text, where completions degenerate."""


def repeats(text: str) -> bool:
    """Return whether more than half of the text's four-word sequences repeat earlier ones."""
    tail = text[-LONGEST:]
    units = tail.split()
    if len(units) * 12 < len(tail):  # hardly any spaces
        units = [tail[i : i + 2] for i in range(0, len(tail) - 1, 2)]
    grams = [tuple(units[i : i + GRAM]) for i in range(len(units) - GRAM + 1)]
    return len(grams) >= FEWEST and len(set(grams)) < len(grams) / 2


def is_gibberish(text: str) -> bool:
    """Return whether many words are nonsense: several scripts in one word, or unpronounceable letters."""
    words = [word for word in text[-LONGEST:].split() if any(map(str.isalpha, word))]
    return len(words) >= FEWEST_WORDS and sum(map(_is_odd, words)) > ODD * len(words)


def _is_odd(word: str) -> bool:
    letters = [letter for letter in word if letter.isalpha() and letter < "\u2e80"]  # Chinese has no spaces
    latin = sum(letter.isascii() or "\u00c0" <= letter <= "\u024f" for letter in letters)
    if "\ufffd" in word or 0 < latin < len(letters):
        return True
    return bool(_UNSPEAKABLE.search("".join(letters).lower()))


def count(texts: Iterable[str]) -> tuple[int, int, int, int, int]:
    """Return the numbers of (all, repetitive, empty, identical, gibberish) texts."""
    sample = list(texts)
    long = Counter(text for text in sample if len(text) >= LONG)
    same = sum(times for times in long.values() if times > 1)
    empty = sum(not text.strip() for text in sample)
    return len(sample), sum(map(repeats, sample)), empty, same, sum(map(is_gibberish, sample))
