"""Removal of what programs, launchers and terminals add to a line: times, ranks, levels, colours and progress bars."""

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from workers.diagnosis.catalogue import catalogue

MAX_LEARNED = 16
MAX_PREFIX_CHARS = 120

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BAR = re.compile(r"([^|\n]{0,100}?)\d{1,3}%\|[^|\n]{0,300}\|[^\[\n]{0,60}\[[^\]\n]{0,120}\]\s*")
_TABLE_ROW = re.compile(r"\s*[│┃](?:[^│┃\n]*[│┃]){3}")
"""A row with three cells or more, such as those in which TRL prints completions."""
_ERROR_WORD = re.compile(r"rror|xception|illed|raceback")
_TRACEBACK = "Traceback (most recent call last)"
_DIGITS = re.compile(r"(?:\\?\d)+")
_MESSAGES = ("msg", "message", "log", "event", "body", "textpayload", "error", "err", "text")
_TRACEBACKS = ("exc_info", "exc_text", "exception", "traceback", "stack_trace", "stacktrace", "stack")
_LEVELS = ("level", "severity", "levelname", "lvl", "log.level", "severity_text", "levelno", "priority")
_ENVELOPES = ("record", "jsonpayload")
"""Keys of objects that hold the record itself, as loguru and Google Cloud write it."""
_RECORD_KEYS = frozenset(
    (*_LEVELS, *_ENVELOPES, "time", "ts", "timestamp", "@timestamp", "asctime", "stream", "logger")
)
"""Keys, one of which a record of a log has, unlike a line of metrics."""
_NUMBERS = {"level": (50, 40), "severity": (50, 40), "levelno": (40, 30), "priority": (-3, -4)}
"""Numbers of an error and a warning by key: of pino, Python, and the system's journal, which counts down."""
MAX_WRAPPERS = 3
"""Number of records within records that are unwrapped, such as a program's in that of its container."""


@functools.cache
def _prefix() -> re.Pattern[str]:
    return re.compile(rf"(?:\s*(?:{'|'.join(catalogue().prefixes)})\s*)+")


@dataclass(frozen=True)
class Cleaned:
    """A line without what surrounds its text."""

    text: str
    is_error: bool | None = None
    """True if the line is logged as an error, False if as a warning or below, None if it has no level."""
    source: str = ""
    """The container that wrote the line, and "serving" for a process of vLLM; "" if the line doesn't say."""
    context: str = ""
    """All lines of a record in JSON, of which `text` is the one that says what happened; "" for other lines."""


class Cleaner:
    """A remover of prefixes that also learns those of its log, from what precedes the headers of tracebacks."""

    def __init__(self) -> None:
        self._learned: list[re.Pattern[str]] = []

    def clean(self, raw: bytes) -> Cleaned:
        """Return a line's text without colours, prefixes and progress bars, with its level and source."""
        cleaned = self._clean(raw.decode("utf-8", "replace").replace("\0", ""))
        inner, is_error, context = cleaned, cleaned.is_error, ""
        for _ in range(MAX_WRAPPERS):
            record = _record(inner.text)
            if record is None:
                break
            message, level = record
            context = message if "\n" in message else context
            inner = self._clean(_conclusion(message))
            is_error = next((known for known in (inner.is_error, level, is_error) if known is not None), None)
        if inner is cleaned:
            return cleaned
        return Cleaned(inner.text, is_error, inner.source or cleaned.source, context)

    def _clean(self, text: str) -> Cleaned:
        text = _ANSI.sub("", text) if "\x1b" in text else text
        if "\r" in text:
            text = _visible(text.split("\r"))
        text = without_bars(text) or text
        for pattern in self._learned:
            if match := pattern.match(text):
                text = text[match.end() :]
                break
        self._learn(text)
        prefix = _prefix().match(text)
        if prefix is None or _TABLE_ROW.match(text):
            return Cleaned(text.strip(" \t\r\n│┃"), None if prefix is None else False)
        text = without_bars(text[prefix.end() :]) or text[prefix.end() :]
        is_error = True if prefix["level"] else False if prefix["mild"] else None
        source = prefix["container"] or ("serving" if _is_of_vllm(prefix["process"] or "") else "")
        return Cleaned(text.rstrip(" \t\r\n│┃"), is_error, source)

    def _learn(self, text: str) -> None:
        before, _, _ = text.partition(_TRACEBACK)
        is_prefix = 0 < len(before) < min(len(text), MAX_PREFIX_CHARS) and not _ERROR_WORD.search(before)
        known = _prefix().match(before)
        if is_prefix and len(self._learned) < MAX_LEARNED and (known is None or known.end() < len(before)):
            self._learned.append(re.compile(_DIGITS.sub(r"\\d+", re.escape(before))))


def without_bars(text: str) -> str:
    """Return a text without the progress bars at its beginning; "" if nothing else is left."""
    while "%|" in text and (bar := _BAR.match(text)) and not _ERROR_WORD.search(bar[1]):
        text = text[bar.end() :]
    return text


def _visible(parts: list[str]) -> str:
    """Return what a terminal's line says: its last part that isn't a progress bar, or the last bar."""
    full = [part for part in parts if part.strip()]
    return next((part for part in reversed(full) if without_bars(part).strip()), full[-1] if full else "")


def _record(text: str) -> tuple[str, bool | None] | None:
    """Return the message of a line that is a record in JSON, with its traceback, and whether it is logged as an error,
    or None for any other line."""
    if not text.startswith(('{"', '{ "')):
        return None
    try:
        fields = _lowered(json.loads(text))
    except (ValueError, RecursionError):
        return None
    is_record = len(fields) == 1 or bool(_RECORD_KEYS & set(fields))
    for key in _ENVELOPES:
        fields = {**_lowered(fields[key]), **fields} if isinstance(fields.get(key), dict) else fields
    said = [part for key in (*_MESSAGES, *_TRACEBACKS) if (part := _spoken(fields.get(key))).strip()]
    return ("\n".join(said).strip("\n"), _level_of(fields)) if said and is_record else None


def _lowered(fields: dict[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in fields.items()}


def _spoken(value: object) -> str:
    """Return what a value says: a text, or an error's type and message, as structlog, loguru and pino write them."""
    if isinstance(value, list):
        return "\n".join(_spoken(part) for part in value[:1] if isinstance(part, dict))
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    stack = next((text for key in _TRACEBACKS if isinstance(text := value.get(key), str)), "")
    kind, message = (
        next((text for key in keys if isinstance(text := value.get(key), str)), "")
        for keys in (("type", "exc_type"), ("message", "value", "exc_value"))
    )
    return "\n".join(part for part in (stack, f"{kind}: {message}" if kind and message else message) if part)


def _level_of(fields: dict[str, Any]) -> bool | None:
    """Return whether a record is logged as an error, False for a warning, and None for any other level."""
    key = next((key for key in _LEVELS if key in fields), "")
    level = fields.get(key)
    if isinstance(level, dict):
        level = level.get("name")
    text = str(level).lower()
    if key in _NUMBERS and text.isdecimal():
        error, warning = _NUMBERS[key]
        number = -int(text[:9]) if error < 0 else int(text[:9])
        return True if number >= error else False if number >= warning else None
    return text.startswith(("err", "crit", "fatal", "alert", "emerg")) or (None, False)[text.startswith("warn")]


def _conclusion(text: str) -> str:
    """Return the line of several that says what happened: the last that isn't indented, as in a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[-1] if lines else text.strip()


def _is_of_vllm(process: str) -> bool:
    return any(name in process for name in ("APIServer", "EngineCore", "VllmWorker", "Worker_", "Worker "))
