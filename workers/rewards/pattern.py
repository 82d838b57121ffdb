"""User-defined regular expressions: tried before they are saved, and matched with a time limit.

Python's `re` can't be interrupted, but the `regex` module can, so all matching uses `regex`. Patterns that backtrack
catastrophically are detected by trials: each repeat is matched against strings that nearly match it (the prefix before
the repeat, its body many times, and an end that matches nothing).
"""

import functools
import importlib
import math
import re
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

MAX_PATTERN_LENGTH = 2_000
MAX_COUNTED = 10_000
"""Upper bound of a {n}, and of the product of nested ones, since `regex` unrolls each repetition."""
MATCH_SECONDS = 0.25
TRIAL_SECONDS = 0.1
"""Time limit for one trial string; a slower pattern gets a second try, in case the machine was busy."""
TRIAL_LENGTH = 2_000
MAX_TRIALS = 80
ALL_TRIALS_SECONDS = 2.0

MODES = ("anywhere", "from the start", "whole text")
_CALLS = dict(zip(MODES, ("search", "match", "fullmatch"), strict=True))
_COUNT = re.compile(r"\{\s*([0-9]+)\s*(?:,\s*([0-9]*))?\s*\}")
_VERBOSE_FLAG = re.compile(r"\(\?[a-zA-Z0-9]*x")
_PIECES = ("a", "A", "0", " ", "\n", ".", "é", "a ", "ab", "0,", "<a>", "\\")
_SIGNS = r"\()[]{}?*+|^$."
_WARNINGS_LOCK = threading.Lock()
"""Lock around warnings.catch_warnings, which replaces a process-wide list: the web process matches in several
threads."""


def matches(
    pattern: str, text: str, mode: str = "anywhere", *, ignore_case: bool = False, dot_all: bool = True
) -> bool:
    """Return whether a pattern without a `problem` matches the text. Raises TimeoutError after MATCH_SECONDS."""
    return _matches(_compile(pattern, ignore_case, dot_all), text, mode, MATCH_SECONDS)


@functools.lru_cache(maxsize=512)
def problem(pattern: str, mode: str = "anywhere", *, ignore_case: bool = False, dot_all: bool = True) -> str:
    """Return why the pattern can't be used, as a sentence without its subject, or "" if it can be used."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        return f"must be at most {MAX_PATTERN_LENGTH} characters"
    if _unrolled_size(pattern) > MAX_COUNTED:
        return f"must not repeat anything more than {MAX_COUNTED:,} times"
    try:
        compiled = _compile(pattern, ignore_case, dot_all)
    except (_library().error, RecursionError, OverflowError, ValueError, TypeError) as error:
        return f"is not a valid regular expression: {error}"
    return _trial_problem(compiled, pattern, mode)


def _trial_problem(compiled: Any, pattern: str, mode: str) -> str:
    deadline = time.thread_time() + ALL_TRIALS_SECONDS
    for number, text in enumerate(near_misses(pattern)):
        if number >= MAX_TRIALS:
            break
        try:
            _matches(compiled, text, mode, TRIAL_SECONDS)
        except TimeoutError:
            try:
                _matches(compiled, text, mode, 3 * TRIAL_SECONDS)
            except TimeoutError:
                return (
                    f"backtracks catastrophically: {TRIAL_LENGTH:,} characters beginning with {_quote(text)} "
                    f"take more than {1000 * TRIAL_SECONDS:.0f} ms. Avoid repeats inside repeats"
                )
        except MemoryError:
            return f"needs too much memory for a string beginning with {_quote(text)}"
        if time.thread_time() > deadline:
            return f"is too slow: {number + 1} strings of {TRIAL_LENGTH:,} characters took {ALL_TRIALS_SECONDS:g} s"
    return ""


def near_misses(pattern: str) -> Iterator[str]:
    """Yield strings of about TRIAL_LENGTH characters that nearly match a repeat of the pattern, and simple repeated
    strings in case Python's parser doesn't know the syntax."""
    try:
        parsed = _parse(pattern)
        pumps = list(dict.fromkeys(_pumps(parsed, "")))
        sample = _sample(parsed, 0)
    except (re.error, RecursionError, OverflowError, AttributeError):
        pumps, sample = [], "".join(char for char in pattern if char not in _SIGNS)
    pumps += [("", piece) for piece in (*_PIECES, *sorted(set(pattern) - set(_SIGNS)))]
    for prefix, body in pumps:
        # The last end is there because `regex` first looks for what every match contains.
        for end in ("\0", "\n\0\n", "\0" + sample):
            yield prefix + body * max(1, (TRIAL_LENGTH - len(prefix)) // len(body)) + end


def _unrolled_size(pattern: str) -> int:
    """Return the size of the pattern with all {n} unrolled, at least the highest number in it. If Python's parser
    doesn't know the syntax, the size is an upper bound."""
    if _VERBOSE_FLAG.search(pattern):  # white space and comments may then be anywhere, even within {n}
        bare = "".join(pattern.split())
        commentless = "".join(re.sub("#[^\n]*", "", pattern).split())
        return max(map(_max_unrolled, (pattern, bare, commentless)))
    try:
        return max(_highest(pattern), _size(_parse(pattern)))
    except (re.error, RecursionError, OverflowError):
        return _max_unrolled(pattern)


def _max_unrolled(pattern: str) -> int:
    """Return the size that the pattern would have if all its {n} were nested."""
    return max(_highest(pattern), math.prod(max(int(bounds[0][:12]), 1) for bounds in _COUNT.findall(pattern)))


def _highest(pattern: str) -> int:
    return max((int(number[:12]) for bounds in _COUNT.findall(pattern) for number in bounds if number), default=0)


def _size(parsed: Any) -> int:
    size = 0
    for operation, argument in parsed:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            size += max(int(argument[0]), 1) * _size(argument[2])
        elif name == "BRANCH":
            size += sum(map(_size, argument[1]))
        elif name in {"SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"}:
            size += _size(argument if name == "ATOMIC_GROUP" else argument[-1])
        else:
            size += 1
    return size


def _pumps(parsed: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for operation, argument in parsed:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            _, maximum, body = argument
            if int(maximum) > 5:
                yield from ((prefix, text) for pick in range(3) if (text := _sample(body, pick)))
            yield from _pumps(body, prefix)
        elif name == "BRANCH":
            for alternative in argument[1]:
                yield from _pumps(alternative, prefix)
        elif name in {"SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"}:
            yield from _pumps(argument if name == "ATOMIC_GROUP" else argument[-1], prefix)
        prefix = (prefix + _sample_item(name, argument, 0))[:TRIAL_LENGTH]


def _sample(parsed: Any, pick: int) -> str:
    """Return a string of at most TRIAL_LENGTH characters that matches or nearly matches a parsed pattern. `pick`
    selects among alternatives."""
    return "".join(_sample_item(str(operation), argument, pick) for operation, argument in parsed)[:TRIAL_LENGTH]


def _sample_item(name: str, argument: Any, pick: int) -> str:
    if name == "LITERAL":
        return chr(argument)
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        return _sample(argument[2], pick) * min(max(int(argument[0]), 1), TRIAL_LENGTH)
    if name == "BRANCH":
        return _sample(argument[1][pick % len(argument[1])], pick)
    if name == "SUBPATTERN":
        return _sample(argument[-1], pick)
    if name == "ATOMIC_GROUP":
        return _sample(argument, pick)
    if name == "ANY":
        return "a0 "[pick % 3]
    if name == "NOT_LITERAL":
        return next(char for char in "a0 <" if ord(char) != argument)
    return _member(argument, pick) if name == "IN" else ""


_CATEGORIES = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_DIGIT": "a"}


def _member(items: Any, pick: int) -> str:
    if str(items[0][0]) == "NEGATE":
        excluded = {argument for operation, argument in items if str(operation) == "LITERAL"}
        allowed = [char for char in "a0 \n<.é" if ord(char) not in excluded]
        return allowed[pick % len(allowed)] if allowed else "~"
    operation, argument = items[pick % len(items)]
    if str(operation) == "LITERAL":
        return chr(argument)
    if str(operation) == "RANGE":
        return chr(argument[0])
    return _CATEGORIES.get(str(argument), ".")


def _matches(compiled: Any, text: str, mode: str, seconds: float) -> bool:
    return getattr(compiled, _CALLS[mode])(text, timeout=seconds) is not None


@functools.lru_cache(maxsize=512)
def _compile(pattern: str, ignore_case: bool, dot_all: bool) -> Any:
    library = _library()
    flags = (library.IGNORECASE if ignore_case else 0) | (library.DOTALL if dot_all else 0)
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return library.compile(pattern, flags)


def _library() -> Any:
    import regex  # 20 ms that most processes don't need

    return regex


def _parse(pattern: str) -> Any:
    """Parse a pattern with Python's own parser, which has no type stubs, and return the syntax tree."""
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("re._parser").parse(pattern)


def _quote(text: str) -> str:
    return repr(text[:24]) + ("…" if len(text) > 24 else "")
