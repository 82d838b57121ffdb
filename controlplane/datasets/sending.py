"""Hands a version to the worker; what can't be sent now waits, and the sweep sends it again."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction
from kombu.exceptions import KombuError

from controlplane.datasets.models import DatasetVersion

log = logging.getLogger(__name__)


def send_to_worker(version: DatasetVersion) -> None:
    """Queue what is due once the transaction is through. Without a broker the version waits."""
    pk = version.pk

    def send() -> None:
        from controlplane.datasets.tasks import validate_version

        if not settings.REDIS_URL:
            log.debug("REDIS_URL is not set: dataset version %s waits", pk)  # the demo and tests work it off themselves
            return
        try:
            validate_version.apply_async((pk,), retry=False)
        except (KombuError, OSError):
            log.warning("No broker to queue dataset version %s; it is sent again later", pk)

    transaction.on_commit(send)
