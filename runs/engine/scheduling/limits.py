"""Limits on a user's active and queued runs. Both are checked while the user's row is locked, so that two launches or
two dispatchers can't exceed a limit together. A run counts towards its owner's limits, even if another user resumed it;
trials count like any run."""

from dataclasses import dataclass

from django.conf import settings

from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Run, RunGroup
from runs.engine.states import ON_HOST, RunStatus
from workers.contract.run.jobs import WARM

TO_MAKE_ROOM = "Wait until a run starts, remove one from the queue, or ask an admin for a higher limit."


class QueueFull(Exception):
    """The user may not queue more runs."""


class OverLimit(Exception):
    """The user or the group has reached the limit of active runs."""


@dataclass(frozen=True)
class Allowance:
    """A user's limits and usage. A limit of 0 means no limit."""

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
        """The number of runs that may still be queued, or None for any number."""
        return max(0, self.max_queued - self.queued) if self.max_queued else None

    def no_room(self, new_runs: int = 1) -> str:
        """Explain why the user may not queue `new_runs` more runs, or return "" if the user may."""
        if self.room is None or new_runs <= self.room:
            return ""
        runs = "1 run" if self.queued == 1 else f"{self.queued} runs"
        addition = f"; this would add {new_runs}" if new_runs > 1 else ""
        return f"{self.person} has {runs} in the queue and may have {self.max_queued}{addition}."

    @property
    def wait(self) -> str:
        """The reason why a run is waiting while its owner is at the limit."""
        ends_needed = self.running - self.max_running + 1
        if self.running == 1:
            condition = f"{self.person}'s running run ends"
        else:
            condition = f"{'one' if ends_needed == 1 else ends_needed} of {self.person}'s {self.running} running runs "
            condition += "ends" if ends_needed == 1 else "end"
        return f"waits until {condition} (limit {self.max_running})"


def max_running(user: User) -> int:
    return settings.MAX_RUNNING if user.max_running is None else user.max_running


def max_queued(user: User) -> int:
    return settings.MAX_QUEUED if user.max_queued is None else user.max_queued


def allowance(user: User) -> Allowance:
    # Warm servers don't count, because they end if a run needs their GPUs.
    runs = Attempt.objects.filter(run__owner=user).exclude(run__kind=WARM)
    return Allowance(
        person=user.get_username(),
        running=runs.filter(status__in=ON_HOST).count(),
        queued=runs.filter(status=RunStatus.QUEUED).count(),
        max_running=max_running(user),
        max_queued=max_queued(user),
    )


def lock_user(user_id: int) -> User:
    """Lock the user's row until the caller's transaction ends, and return it. Others who start or queue the user's runs
    wait, but rows that only refer to the user can still be written."""
    return User.objects.select_for_update(no_key=True).get(pk=user_id)


def claim_room(user_id: int, new_runs: int = 1) -> None:
    """Lock the user and check the queue limit. Call it in the transaction that queues the `new_runs`, before any of
    them is queued. Raises QueueFull if they would exceed the limit."""
    user = lock_user(user_id)
    if not max_queued(user):
        return
    if problem := allowance(user).no_room(new_runs):
        raise QueueFull(f"{problem} {TO_MAKE_ROOM}")


def count_on_hosts(group: RunGroup) -> int:
    return Attempt.objects.filter(run__group=group, status__in=ON_HOST).count()


def group_wait(group: RunGroup, running: int) -> str:
    """Describe what a run is waiting for while its group is at its limit."""
    end = "the running run" if running == 1 else f"one of the {running} running runs"
    return f"waits until {end} of its group ends (at most {group.at_once} at once)"


def claim_start(run: Run) -> None:
    """Lock the run's owner and check the limits on active runs. Call it in the transaction that starts the run. Raises
    OverLimit if the owner or the run's group has as many active runs as allowed."""
    group_limit = run.group.at_once if run.group else None
    if not (group_limit or max_running(run.owner)):
        return
    owner = lock_user(run.owner_id)
    if run.group and group_limit and (running_count := count_on_hosts(run.group)) >= group_limit:
        raise OverLimit(group_wait(run.group, running_count))
    if not max_running(owner):
        return
    owner_allowance = allowance(owner)
    if not owner_allowance.may_start:
        raise OverLimit(owner_allowance.wait)
