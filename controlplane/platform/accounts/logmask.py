"""Log filters: they mask the tokens of one-time links and shared runs, and drop the tracebacks of refusals.

Readers of logs must not be able to use those links, and Django logs the path of refused and failed requests. Loaded
with the settings, so no models here.
"""

import logging
import re

MASK = "…"
_TOKEN = re.compile(r"(?i)((?:sign-in(?:/|%2f)+once|/shared)(?:/|%2f)+)[^/\s'\"<>]+")
_PLAIN = logging.Formatter()


class MaskLinkTokens(logging.Filter):
    """Filter that masks link tokens in records and their tracebacks."""

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
    """Filter that drops the traceback of records about answers below 500."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True


def _masked(text: str) -> str:
    return _TOKEN.sub(rf"\g<1>{MASK}", text)
