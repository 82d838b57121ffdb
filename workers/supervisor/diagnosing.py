"""The diagnosis of an attempt that has ended, as its event has it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from workers.contract.wire.names import EndReason
from workers.diagnosis.folder import NothingToRead, diagnose

log = logging.getLogger(__name__)

WAIT_S = 3.0
"""A receipt waits no longer for the diagnosis."""
MOST_READ = 256 << 20
"""Bytes of each log."""
MOST = 5
"""Causes."""
UNDIAGNOSED = frozenset(
    {EndReason.COMPLETED, EndReason.STOPPED_BY_USER, EndReason.LIMIT_REACHED, EndReason.EARLY_STOPPED}
    | {EndReason.PREEMPTED, EndReason.HOST_SHUTDOWN, EndReason.HOST_PREEMPTED, EndReason.FOLDER_LOST}
)


def diagnosed(folder: Path) -> dict[str, Any] | None:
    """The event's data. None without logs, or after an error of its own: no end depends on it."""
    try:
        report = diagnose(folder, MOST_READ).as_dict()
    except (OSError, NothingToRead):
        return None
    except Exception:  # a log may hold anything, and no end waits for a mistake of ours in reading it
        log.exception("the diagnosis failed")
        return None
    return {**report, "diagnoses": report["diagnoses"][:MOST]}
