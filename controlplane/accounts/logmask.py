"""Keeps the tokens of one-time links out of the logs: whoever reads a log must not be able to sign in by it.

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


def _masked(text: str) -> str:
    return _TOKEN.sub(rf"\g<1>{MASK}", text)
