"""Removal of what programs, launchers and terminals add to a line: times, ranks, levels, colours and progress bars."""

import json
import re
from dataclasses import dataclass

from workers.diagnosis.catalogue import catalogue

MAX_LEARNED = 16
MAX_PREFIX_CHARS = 120

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PREFIX = re.compile(rf"(?:\s*(?:{'|'.join(catalogue().prefixes)})\s*)+")
_BAR = re.compile(r"([^|\n]{0,100}?)\d{1,3}%\|[^|\n]{0,300}\|[^\[\n]{0,60}\[[^\]\n]{0,120}\]\s*")
_ERROR_WORD = re.compile(r"rror|xception|illed|raceback")
_TRACEBACK = "Traceback (most recent call last)"
_DIGITS = re.compile(r"(?:\\?\d)+")
_MESSAGES = ("msg", "message", "log", "event", "body", "error", "text")
_TRACEBACKS = ("exc_info", "exception", "traceback", "stack_trace", "stacktrace", "stack")
_LEVELS = ("level", "severity", "levelname", "lvl")
_RECORD_KEYS = frozenset((*_LEVELS, "time", "ts", "timestamp", "@timestamp", "asctime", "stream", "logger"))
"""Keys, one of which a record of a log has, unlike a line of metrics."""


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
        record = _record(cleaned.text)
        if record is None:
            return cleaned
        message, is_error = record
        inner = self._clean(_conclusion(message))
        is_error = next(
            (verdict for verdict in (inner.is_error, is_error, cleaned.is_error) if verdict is not None), None
        )
        return Cleaned(inner.text, is_error, inner.source or cleaned.source, message if "\n" in message else "")

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
        prefix = _PREFIX.match(text)
        if prefix is None:
            return Cleaned(text.strip())
        text = without_bars(text[prefix.end() :]) or text[prefix.end() :]
        is_error = True if prefix["level"] else False if prefix["mild"] else None
        source = prefix["container"] or ("serving" if _is_of_vllm(prefix["process"] or "") else "")
        return Cleaned(text.rstrip(" \t\r\n│┃"), is_error, source)

    def _learn(self, text: str) -> None:
        before, _, _ = text.partition(_TRACEBACK)
        is_prefix = 0 < len(before) < min(len(text), MAX_PREFIX_CHARS) and not _ERROR_WORD.search(before)
        known_prefix = _PREFIX.match(before)
        if (
            is_prefix
            and len(self._learned) < MAX_LEARNED
            and (known_prefix is None or known_prefix.end() < len(before))
        ):
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
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    messages = [
        value for key in (*_MESSAGES, *_TRACEBACKS) if isinstance(value := fields.get(key), str) and value.strip()
    ]
    if not messages or not (len(fields) == 1 or _RECORD_KEYS & set(fields)):
        return None
    level = str(next((fields[key] for key in _LEVELS if key in fields), "")).lower()
    is_error = True if level.startswith(("err", "crit", "fatal")) else False if level.startswith("warn") else None
    return "\n".join(messages).strip("\n"), is_error


def _conclusion(text: str) -> str:
    """Return the line of several that says what happened: the last that isn't indented, as in a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[-1] if lines else text.strip()


def _is_of_vllm(process: str) -> bool:
    return any(name in process for name in ("APIServer", "EngineCore", "VllmWorker", "Worker_", "Worker "))
