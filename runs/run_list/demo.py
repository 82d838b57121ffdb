"""The demo run, and what `manage.py demo` is preparing while there is none: one line in the data folder."""

from __future__ import annotations

import time
from pathlib import Path

from django.conf import settings

from runs.models import Run

NAME = "Demo: arithmetic"
FRESH_S = 120.0
"""The longest time between two reports; an older line was left by a demo that was killed."""


def newest() -> Run | None:
    return Run.objects.filter(name=NAME).order_by("-created_at").first()


def report(text: str) -> None:
    _line().write_text(text)


def done() -> None:
    _line().unlink(missing_ok=True)


def preparing() -> str:
    """What the demo is preparing now; empty if it is not."""
    line = _line()
    try:
        return line.read_text() if time.time() - line.stat().st_mtime < FRESH_S else ""
    except FileNotFoundError:
        return ""


def _line() -> Path:
    return Path(settings.DATA_DIR) / "demo-preparing"
