"""The queue and its limits, with several processes at the same instant, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from tests.database.racing import Racers

pytestmark = pytest.mark.processes

ROUNDS = 3
CLEAN = """
from controlplane.platform.accounts.models import User
from runs.engine.scheduling import limits, gpu_queue, reordering
Attempt.objects.exclude(status__in=["succeeded", "failed", "stopped"]).update(status="stopped")
Lease.objects.update(state="released")
"""
MANY = f"""{CLEAN}
User.objects.filter(pk=a_user().pk).update(max_running=2, max_queued=0)
host = Host.objects.filter(name="wide").first() or a_host("wide", gpus=8)
Host.objects.filter(pk=host.pk).update(announced_at=None)
for number in range(6):
    a_run(f"run {{number}}", host=host, hardware=ONE_GPU)
Host.objects.filter(pk=host.pk).update(announced_at=timezone.now())
"""
ROOM = f"""{CLEAN}
User.objects.filter(pk=a_user().pk).update(max_running=0, max_queued=3)
Host.objects.update(announced_at=None)
a_run("there already")
"""
SUBMIT = """
from runs.engine.scheduling.limits import QueueFull
try:
    result = a_run(f"run {me}").pk
except QueueFull as full:
    result = None
"""
LAST_PLACE = f"""{CLEAN}
User.objects.filter(pk=a_user().pk).update(max_running=0, max_queued=1)
Host.objects.update(announced_at=None)
"""
CLICK = """
from runs.engine.idempotency import once
def make():
    run = a_run("clicked")
    Run.objects.filter(pk=run.pk).update(launch_key=key)
    return run
result = once(Run.objects.all(), key, make)[0].pk
"""
LINE = f"""{CLEAN}
User.objects.filter(pk=a_user().pk).update(max_running=0, max_queued=0)
Host.objects.update(announced_at=None)
result = [a_run(name).pk for name in "abcdef"]
"""
MOVE = """
from runs.engine.scheduling import gpu_queue, reordering
user, runs = a_user(), [Run.objects.get(pk=pk) for pk in pks]
acts = {
    "front": lambda: [reordering.move_run(run, user) for run in runs],
    "swap": lambda: [reordering.move_run(runs[n + 1], user, before=runs[n]) for n in range(5)],
    "back": lambda: [reordering.move_run(runs[n], user, after=runs[n + 1]) for n in range(5)],
    "grade": lambda: [reordering.set_priority(run, n % 3 - 1, user) for n, run in enumerate(runs)],
}
acts[act]()
"""

WAITING = """
from runs.engine.scheduling import gpu_queue
result = [a.run_id for a in gpu_queue.queued_attempts()]
"""
REVERSE = """
from runs.engine.scheduling import gpu_queue, reordering
for pk in pks:
    reordering.move_run(Run.objects.get(pk=pk), a_user())
result = [a.run_id for a in gpu_queue.queued_attempts()]
"""


def test_dispatchers_start_no_more_than_one_person_may_have(racers: Racers) -> None:
    for _ in range(ROUNDS):
        racers.alone(MANY)
        started = racers.at_once("result = dispatching.dispatch_ready()")
        look = "result = [Attempt.objects.filter(status=s).count() for s in ('starting', 'queued')]"
        assert racers.alone(look) == [2, 4]
        assert sum(started) == 2


def test_launches_at_once_do_not_pass_the_limit_of_the_queue(racers: Racers) -> None:
    for _ in range(ROUNDS):
        racers.alone(ROOM)
        made = racers.at_once(SUBMIT, [{"me": number} for number in range(4)])
        assert sum(pk is not None for pk in made) == 2
        assert racers.alone("result = Attempt.objects.filter(status='queued').count()") == 3


def test_every_click_for_the_last_place_in_the_queue_is_shown_the_same_run(racers: Racers) -> None:
    for number in range(ROUNDS):
        racers.alone(LAST_PLACE)
        assert len(set(racers.at_once(CLICK, key=f"page {number}"))) == 1


def test_people_move_runs_at_once_and_the_queue_stays_one(racers: Racers) -> None:
    for _ in range(ROUNDS):
        pks = racers.alone(LINE)
        racers.at_once(MOVE, [{"pks": pks, "act": act} for act in ("front", "swap", "back", "grade")])
        assert sorted(racers.alone(WAITING)) == sorted(pks)
        # Whatever they have left behind, equal turns too: who is put somewhere stands there.
        assert racers.alone(REVERSE, pks=pks) == pks[::-1]
