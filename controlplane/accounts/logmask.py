"""What the logs leave out. The tokens of one-time links: whoever reads a log must not be able to sign in by it. And
tracebacks of refusals, which are no crashes.

Django writes a request's path for a refused form, for 4xx and for 5xx answers. Loaded with the settings, so no models.
"""

from __future__ import annotations

import logging
import re

MASK = "…"
_TOKEN = re.compile(r"(?i)(sign-in(?:/|%2f)+once(?:/|%2f)+)[^/\s'\"<>]+")
_PLAIN = logging.Formatter()


class MaskLinkTokens(logging.Filter):
    """Lets every record through, with link tokens masked in its text and in its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (masked := _masked(text)) != text:
            record.msg, record.args = masked, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _PLAIN.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = _masked(record.exc_text)
        return True


class NoTracebackOfRefusals(logging.Filter):
    """Lets every record through; one of an answer below 500 is its line alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True


def _masked(text: str) -> str:
    return _TOKEN.sub(rf"\g<1>{MASK}", text)
