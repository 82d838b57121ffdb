"""Handling of runs at the end of `up` or `demo`: they are counted and left training, or stopped."""

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
"""Seconds within which the last completions and log lines of ended runs should arrive."""


def training() -> int:
    """Return the number of active runs, or 0 if the database is unavailable, which must not prevent a clean end."""
    try:
        return Attempt.objects.filter(status__in=ON_HOST).count()
    except DatabaseError:
        return 0


def stop_all(serving: RunningServices, user: User, report: Callable[[str], None]) -> bool:
    """Stop all runs, and wait for their receipts and for this machine's last uploads. Return whether all have ended."""
    from runs.engine.scheduling.stopping import request_stop

    active_attempts = Attempt.objects.filter(status__in=ACTIVE)
    attempts = list(active_attempts.all())
    if not attempts:
        return True
    report(f"Stopping {plural(len(attempts), 'run')} …")
    for attempt in attempts:
        request_stop(attempt, StopMode.NOW, user)
    if serving.watch_until(lambda: not active_attempts.exists(), STOP_DEADLINE_S):
        folders = [serving.installation.runs_dir / attempt.run_id / str(attempt.number) for attempt in attempts]
        serving.watch_until(lambda: not any(map(_is_supervised, folders)), HAND_OVER_DEADLINE_S)
        return True
    remaining = ", ".join(active_attempts.values_list("pk", flat=True))
    report(f"Not stopped after {STOP_DEADLINE_S:.0f} s: {remaining}. See their folders under runs/.")
    return False


def _is_supervised(folder: Path) -> bool:
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
