"""How many runs one person may have on hosts, and in the queue: whose limit it is, and how it is held.

Each is decided with the person's row locked, so that two launches, or two dispatchers, can't both find the last place.
A run counts for its owner, whoever resumed it; trials of profiles count like any run.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from controlplane.accounts.models import User
from runs.models import Attempt, Run
from runs.states import ON_HOST, RunStatus

TO_MAKE_ROOM = "Wait until one starts, remove one from the queue, or ask an admin for a higher limit."


class QueueFull(Exception):
    """The person may queue no more runs."""


class OverLimit(Exception):
    """The person has enough runs on hosts."""


@dataclass(frozen=True)
class Allowance:
    """What a person may have, and has. A limit of 0 is none."""

    person: str
    running: int
    queued: int
    max_running: int
    max_queued: int

    @property
    def may_start(self) -> bool:
        return not self.max_running or self.running < self.max_running

    @property
    def room(self) -> int | None:
        """How many more may be queued; None: any number."""
        return max(0, self.max_queued - self.queued) if self.max_queued else None

    @property
    def queue(self) -> str:
        """What they have in the queue, and may."""
        runs = "1 run" if self.queued == 1 else f"{self.queued} runs"
        return f"{self.person} has {runs} in the queue and may have {self.max_queued}"

    @property
    def wait(self) -> str:
        """What a run waits for that may not start."""
        ends = self.running - self.max_running + 1
        if self.running == 1:
            which = f"{self.person}'s running run ends"
        else:
            which = f"{'one' if ends == 1 else ends} of {self.person}'s {self.running} running runs "
            which += "ends" if ends == 1 else "end"
        return f"waits until {which} (limit {self.max_running})"


def max_running(user: User) -> int:
    return _limit(user.max_running, settings.MAX_RUNNING)


def max_queued(user: User) -> int:
    return _limit(user.max_queued, settings.MAX_QUEUED)


def allowance(user: User) -> Allowance:
    runs = Attempt.objects.filter(run__owner=user)
    return Allowance(
        person=user.get_username(),
        running=runs.filter(status__in=ON_HOST).count(),
        queued=runs.filter(status=RunStatus.QUEUED).count(),
        max_running=max_running(user),
        max_queued=max_queued(user),
    )


def hold(user_id: int) -> User:
    """The person as of now, locked until the caller's transaction ends: whoever else starts or queues a run of theirs
    waits so long. Rows that only refer to the person don't."""
    return User.objects.select_for_update(no_key=True).get(pk=user_id)


def claim_room(user_id: int, adding: int = 1) -> None:
    """Inside the transaction that queues `adding` runs of this person, before any of them. QueueFull: too many."""
    user = hold(user_id)
    if not max_queued(user):
        return
    found = allowance(user)
    if found.room is not None and adding > found.room:
        raise QueueFull(_full(found, adding))


def claim_start(run: Run) -> None:
    """Inside the transaction that starts a run. OverLimit: another dispatcher has started the last one allowed."""
    if not max_running(run.owner):
        return
    owner = hold(run.owner_id)
    found = allowance(owner)
    if not found.may_start:
        raise OverLimit(found.wait)


def _full(found: Allowance, adding: int) -> str:
    more = f"; this would add {adding}" if adding > 1 else ""
    return f"{found.queue}{more}. {TO_MAKE_ROOM}"


def _limit(own: int | None, everyones: int) -> int:
    return everyones if own is None else own
