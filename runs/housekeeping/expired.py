"""What has expired and is asked for no more: sessions, join codes, API tokens, launch keys, links to runs. Deleted once
an hour."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from importlib import import_module

from django.conf import settings

from controlplane.catalogue.joining import codes
from controlplane.platform.accounts import api_tokens
from controlplane.platform.http import outage
from runs.engine import idempotency
from runs.engine.sharing import links

log = logging.getLogger(__name__)


def forget_all(now: datetime) -> None:
    steps: tuple[Callable[[datetime], object], ...] = (
        _forget_sessions,
        codes.forget,
        api_tokens.forget,
        idempotency.forget,
        links.forget,
    )
    for step in steps:
        try:
            step(now)
        except Exception as error:  # loop boundary: one table must not keep the others
            if outage.is_away(error):
                raise
            log.exception("what has expired could not be deleted")


def _forget_sessions(now: datetime) -> None:
    """As `clearsessions` does, by Django's own clock."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
