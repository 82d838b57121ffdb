"""The runs of this installation when it ends: counted and left training, or stopped and waited for."""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError

from controlplane.accounts.models import User
from controlplane.serving.serving import Serving
from runs.models import Attempt
from runs.states import ACTIVE, ON_HOST
from workers.contract import StopMode

STOP_DEADLINE_S = 60.0


def training() -> int:
    """0 where nobody can say: a database that is away must not spoil a clean end."""
    try:
        return Attempt.objects.filter(status__in=ON_HOST).count()
    except DatabaseError:
        return 0


def stop_all(serving: Serving, user: User, report: Callable[[str], None]) -> bool:
    """Stop every run now, and wait for the proof. True when all have ended."""
    from runs.stopping import request_stop

    attempts = list(Attempt.objects.filter(status__in=ACTIVE))
    if not attempts:
        return True
    report(f"Stopping {plural(len(attempts), 'run')} …")
    for attempt in attempts:
        request_stop(attempt, StopMode.NOW, user)
    if serving.watch_until(lambda: not Attempt.objects.filter(status__in=ACTIVE).exists(), STOP_DEADLINE_S):
        return True
    left = ", ".join(Attempt.objects.filter(status__in=ACTIVE).values_list("pk", flat=True))
    report(f"Still not ended after {STOP_DEADLINE_S:.0f} s: {left}. Their folders under runs/ say more.")
    return False


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
