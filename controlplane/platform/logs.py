"""Formatting and filtering of log records: JSON lines with the id of the run concerned (CONTROLPLANE_LOG=json), and
filters that mask the tokens of one-time links and shared runs, and drop the tracebacks of refused requests.

People who read logs must not be able to use those links, and Django logs the paths of refused and failed requests. The
settings load this module, so it can't import models.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse

MASK = "…"
_LINK_TOKEN = re.compile(r"(?i)((?:sign-in(?:/|%2f)+once|/shared)(?:/|%2f)+)[^/\s'\"<>]+")
_PLAIN_FORMATTER = logging.Formatter()
_RUN_OR_ATTEMPT = re.compile(r"(r[a-z2-9]{9})(?:-\d+)?")
_current: ContextVar[str] = ContextVar("run", default="")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if run := _run_of(record):
            line["run"] = run
        # A filter may have masked the traceback before, in exc_text.
        if traceback := record.exc_text or (record.exc_info and self.formatException(record.exc_info)):
            line["traceback"] = traceback
        return json.dumps(line, ensure_ascii=False, default=str)


class RunsInLogs:
    """Middleware that attributes log records to the run or attempt of the current view."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = _current.set("")
        try:
            return self.get_response(request)
        finally:
            _current.reset(token)

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponse], args: Any, kwargs: dict[str, Any]
    ) -> None:
        _current.set(_run_id_in([kwargs.get("run_id"), kwargs.get("attempt_id")]))


class MaskLinkTokens(logging.Filter):
    """Filter that masks link tokens in records and their tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (masked_message := _masked(message)) != message:
            record.msg, record.args = masked_message, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _PLAIN_FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = _masked(record.exc_text)
        return True


class NoTracebackOfRefusals(logging.Filter):
    """Filter that drops the traceback of records about responses with a status below 500."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True


def _masked(text: str) -> str:
    return _LINK_TOKEN.sub(rf"\g<1>{MASK}", text)


def _run_of(record: logging.LogRecord) -> str:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return str(getattr(record, "run", "")) or _run_id_in(arguments) or _current.get()


def _run_id_in(values: Iterable[object]) -> str:
    matches = (_RUN_OR_ATTEMPT.fullmatch(value) for value in values if isinstance(value, str))
    return next((match[1] for match in matches if match), "")
