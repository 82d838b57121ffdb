"""Extraction of the answer from a completion: from a tag, after a marker, from a box or from a code block.

All are plain left-to-right searches. Completions are hostile text (a model being optimized finds every input on which
a pattern is slow), so nothing may take more than linear time.
"""

import string
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

FENCE = "```"
MAX_BOX_CHARS = 1_000
PUNCTUATION = string.punctuation + "".join(
    character for character in map(chr, range(0x80, 0x10000)) if unicodedata.category(character).startswith("P")
)
"""Punctuation of any script, and the symbols of ASCII."""
OTHER_ANSWERS = "other_answers"
"""Column with the right answers after the first, a list of strings."""


def answer_at(text: str, source: str, *, tag: str, marker: str = "") -> str | None:
    """Return the answer at a source ("answer tag", "after marker", "boxed" or "code block"), or None if it isn't there.

    Any other source means the whole text.
    """
    if source == "answer tag":
        return last_tag(text, tag)
    if source == "after marker":
        return after_last(text, marker)
    if source == "boxed":
        return last_boxed(text)
    return last_code_block(text) if source == "code block" else text


def first_answer(text: str, sources: Sequence[str], *, tag: str, marker: str = "") -> str:
    """Return the answer at the first source that has one, or the whole text if none has."""
    answers = (answer_at(text, source, tag=tag, marker=marker) for source in sources)
    return next((answer for answer in answers if answer is not None), text)


def right_answers(row: Mapping[str, Any], marker: str = "") -> list[str]:
    """Return the row's right answers (its answer, which may be a list, and OTHER_ANSWERS), each without the text up to
    the marker; empty answers are omitted."""
    answer, other_answers = row.get("answer"), row.get(OTHER_ANSWERS)
    golds = [
        *(answer if isinstance(answer, list) else [answer]),
        *(other_answers if isinstance(other_answers, list) else ()),
    ]
    texts = [str(gold) for gold in golds if gold is not None]
    return [after_last(text, marker) or text for text in texts if text.strip()]


def last_tag(text: str, name: str) -> str | None:
    """Return the content of the last complete <name>...</name>, or None."""
    close = text.rfind(f"</{name}>")
    if close < 0:
        return None
    start = text.rfind(f"<{name}>", 0, close)
    return None if start < 0 else text[start + len(name) + 2 : close]


def after_last(text: str, marker: str) -> str | None:
    """Return the first line of text after the last marker, or None if there is no marker. "" never matches."""
    if not marker:
        return None
    _, separator, rest = text.rpartition(marker)
    if not separator:
        return None
    return (rest.strip().splitlines() or [""])[0].strip()


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete \boxed{...}, with nested braces, or None."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    start += len("\\boxed{")
    depth = 1
    for position in range(start, min(len(text), start + MAX_BOX_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return None


def last_code_block(text: str) -> str | None:
    """Return the content of the last complete fenced code block, without its language tag, or None."""
    pieces = text.split(FENCE)  # odd pieces are inside fences; the last piece has no fence after it
    if len(pieces) < 3:
        return None
    content = pieces[-2] if len(pieces) % 2 else pieces[-3]
    language, newline, code = content.partition("\n")
    return code if newline and len(language.split()) <= 1 else content
