"""The comparison of what code prints or returns with what is expected, in the process that scores.

Outputs are hostile text of bounded length, so nothing may take more than linear time.
"""

import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

TRIMMED_LINES, EXACT_TEXT, TOKEN_BY_TOKEN = "ignoring trailing white space", "exactly", "token by token"
MAX_SHOWN_CHARS = 60
MAX_DEPTH = 100
_WHOLE_NUMBER = re.compile(r"[+-]?\d++", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = _SHORT_REPR.maxlong = MAX_SHOWN_CHARS
_MAX_EXACT = 2**53
"""Number up to which a float holds every whole number."""
_MAX_DIGITS = 400
"""Maximum length of tokens that are compared as numbers."""


def difference(printed: str, expected: str, compare: str, tolerance: float = 0.0) -> str:
    """Return a sentence that says how a printed text differs from the expected one, or "" if it is right. `compare`:
    TRIMMED, EXACTLY or TOKENS, of which only the last uses `tolerance`."""
    if compare == TOKEN_BY_TOKEN:
        return _token_difference(printed.split(), expected.split(), tolerance)
    if compare != EXACT_TEXT:
        printed, expected = _trim(printed), _trim(expected)
    if printed == expected:
        return ""
    if not printed:
        return f"It prints nothing instead of {quote(expected.strip())}."
    lines, expected_lines = printed.split("\n"), expected.split("\n")
    number = next((n for n, pair in enumerate(zip(lines, expected_lines, strict=False)) if pair[0] != pair[1]), None)
    if number is None:
        return f"It prints {'more' if len(lines) > len(expected_lines) else 'fewer'} lines than expected."
    return f"It prints {quote(lines[number])} instead of {quote(expected_lines[number])} on line {number + 1}."


def is_same_value(value: Any, expected: Any, tolerance: float, depth: int = 0) -> bool:
    """Return whether a plain value equals an expected one from JSON: a tuple may be the list, a number the key of an
    object, and floats may differ by the tolerance."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(expected, bool) or expected is None or isinstance(value, bool):
        return type(value) is type(expected) and value == expected
    if isinstance(expected, list):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(is_same_value(*pair, tolerance, depth + 1) for pair in zip(value, expected, strict=True))
        )
    if isinstance(expected, Mapping):
        return isinstance(value, dict) and _are_same_items(value, expected, tolerance, depth + 1)
    if isinstance(expected, int | float) and isinstance(value, int | float):
        return value == expected or (
            isinstance(value, float) and _is_close(value, expected, tolerance, is_whole=isinstance(expected, int))
        )
    return type(value) is type(expected) and bool(value == expected)


def quote(value: Any) -> str:
    """Return a value as people read it in Python, shortened."""
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_SHOWN_CHARS else f"{value[:MAX_SHOWN_CHARS]}…")
    try:
        return _SHORT_REPR.repr(value)
    except (ValueError, RecursionError):  # a number with too many digits
        return "a value that can't be shown"


def _are_same_items(value: dict[Any, Any], expected: Mapping[Any, Any], tolerance: float, depth: int) -> bool:
    items_by_name = {key if isinstance(key, str) else repr(key): item for key, item in value.items()}
    return items_by_name.keys() == expected.keys() and all(
        is_same_value(items_by_name[key], item, tolerance, depth) for key, item in expected.items()
    )


def _token_difference(tokens: list[str], expected_tokens: list[str], tolerance: float) -> str:
    for number, (token, expected_token) in enumerate(zip(tokens, expected_tokens, strict=False), 1):
        if token != expected_token and not _is_same_number(token, expected_token, tolerance):
            return f"It prints {quote(token)} instead of {quote(expected_token)} as token {number}."
    if len(tokens) == len(expected_tokens):
        return ""
    if not tokens:
        return f"It prints nothing instead of {quote(' '.join(expected_tokens[:MAX_SHOWN_CHARS]))}."
    return f"It prints {len(tokens):,} tokens instead of {len(expected_tokens):,}."


def _is_same_number(token: str, expected_token: str, tolerance: float) -> bool:
    """Return whether two different tokens are numbers within the tolerance. Two whole numbers never are."""
    if not tolerance or max(len(token), len(expected_token)) > _MAX_DIGITS:
        return False
    if not _DECIMAL.fullmatch(token) or not _DECIMAL.fullmatch(expected_token):
        return False
    is_whole = bool(_WHOLE_NUMBER.fullmatch(expected_token))
    return not (is_whole and _WHOLE_NUMBER.fullmatch(token)) and _is_close(
        float(token), float(expected_token), tolerance, is_whole=is_whole
    )


def _is_close(value: float, expected: float, tolerance: float, *, is_whole: bool) -> bool:
    """Return whether a number is within the tolerance: absolute and, unless a whole number is expected, relative."""
    if abs(expected) > _MAX_EXACT and is_whole:
        return False
    if not (math.isfinite(value) and math.isfinite(expected)):
        return value == expected
    allowed = tolerance if is_whole else tolerance * max(1.0, abs(expected))
    return abs(value - expected) <= allowed


def _trim(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip()
