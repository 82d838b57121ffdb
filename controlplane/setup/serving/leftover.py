"""The installation's runs at its end: left training and counted, or stopped and waited for."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

from django.db import DatabaseError

from controlplane.platform.accounts.models import User
from controlplane.setup.serving.serving import RunningServices
from runs.engine.models import Attempt
from runs.engine.states import ACTIVE, ON_HOST
from workers.contract.wire.names import FileName, StopMode

STOP_DEADLINE_S = 60.0
HAND_OVER_DEADLINE_S = 15.0
"""Runs end before their last completions and log lines have arrived."""


def training() -> int:
    """The number of active runs; 0 if unknown: an unavailable database must not spoil a clean end."""
    try:
        return Attempt.objects.filter(status__in=ON_HOST).count()
    except DatabaseError:
        return 0


def stop_all(serving: RunningServices, user: User, report: Callable[[str], None]) -> bool:
    """Stop all runs and wait for their proof and the rest of this machine's uploads. Return whether all have ended."""
    from runs.engine.scheduling.stopping import request_stop

    attempts = list(Attempt.objects.filter(status__in=ACTIVE))
    if not attempts:
        return True
    report(f"Stopping {plural(len(attempts), 'run')} …")
    for attempt in attempts:
        request_stop(attempt, StopMode.NOW, user)
    if serving.watch_until(lambda: not Attempt.objects.filter(status__in=ACTIVE).exists(), STOP_DEADLINE_S):
        folders = [serving.installation.runs_dir / attempt.run_id / str(attempt.number) for attempt in attempts]
        serving.watch_until(lambda: not any(map(_supervised, folders)), HAND_OVER_DEADLINE_S)
        return True
    remaining = ", ".join(Attempt.objects.filter(status__in=ACTIVE).values_list("pk", flat=True))
    report(f"Still not ended after {STOP_DEADLINE_S:.0f} s: {remaining}. Their folders under runs/ say more.")
    return False


def _supervised(folder: Path) -> bool:
    """True if a supervisor is alive: it holds the lock of its attempt's folder."""
    try:
        with open(folder / FileName.LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
