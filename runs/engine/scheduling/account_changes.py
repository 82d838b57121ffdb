"""Effects of account changes on runs: open sockets check their sign-in, and queued runs may start."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from controlplane.platform.accounts.models import limits_raised, sign_in_changed
from runs.engine import hints
from runs.engine.scheduling import launching


@receiver(sign_in_changed)
def ask_sockets_again(user_id: int, **signal: Any) -> None:
    hints.person_changed(user_id)


@receiver(limits_raised)
def start_queued_runs(**signal: Any) -> None:
    launching.dispatch_ready()
