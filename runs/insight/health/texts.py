"""Signs of decay in completions: repetitive, empty, identical and nonsensical text."""

import re
from collections import Counter
from collections.abc import Iterable

GRAM_WORDS = 4
"""Words per n-gram; in text without spaces, pairs of characters are used as words."""
MIN_GRAMS = 24
MIN_WORDS = 10
MAX_ODD_SHARE = 0.15
"""Share of odd words above which a text is gibberish. Prose, code and formulas have a few per cent."""
MIN_IDENTICAL_CHARS = 80
"""Minimum length of texts that are counted as identical, since short answers are often the same."""
_UNPRONOUNCEABLE_WORD = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}|^[bcdfghjklmnpqrstvwxz]{5,}$|[a-z]{30}")
MAX_CHARS = 4000
"""Number of characters read from the end of a text, where completions degenerate."""


def repeats(text: str) -> bool:
    """Return whether more than half of the text's four-word sequences repeat earlier ones."""
    tail = text[-MAX_CHARS:]
    units = tail.split()
    if len(units) * 12 < len(tail):  # hardly any spaces
        units = [tail[i : i + 2] for i in range(0, len(tail) - 1, 2)]
    grams = [tuple(units[i : i + GRAM_WORDS]) for i in range(len(units) - GRAM_WORDS + 1)]
    return len(grams) >= MIN_GRAMS and len(set(grams)) < len(grams) / 2


def is_gibberish(text: str) -> bool:
    """Return whether many words are nonsense: several scripts in one word, or unpronounceable letters."""
    words = [word for word in text[-MAX_CHARS:].split() if any(map(str.isalpha, word))]
    return len(words) >= MIN_WORDS and sum(map(_is_odd, words)) > MAX_ODD_SHARE * len(words)


def _is_odd(word: str) -> bool:
    letters = [letter for letter in word if letter.isalpha() and letter < "\u2e80"]  # Chinese has no spaces
    latin = sum(letter.isascii() or "\u00c0" <= letter <= "\u024f" for letter in letters)
    if "\ufffd" in word or 0 < latin < len(letters):
        return True
    return bool(_UNPRONOUNCEABLE_WORD.search("".join(letters).lower()))


def count(texts: Iterable[str]) -> tuple[int, int, int, int, int]:
    """Return the numbers of (all, repetitive, empty, identical, gibberish) texts."""
    sample = list(texts)
    long_texts = Counter(text for text in sample if len(text) >= MIN_IDENTICAL_CHARS)
    identical = sum(times for times in long_texts.values() if times > 1)
    empty = sum(not text.strip() for text in sample)
    return len(sample), sum(map(repeats, sample)), empty, identical, sum(map(is_gibberish, sample))
