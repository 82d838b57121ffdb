"""Several processes at the same instant: one outcome, nobody crashes. On SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from tests.database.racing import Racers

pytestmark = pytest.mark.processes

ROUNDS = 4
QUEUED = """
from tests.runs import builders
# Whatever an earlier round left waits no more; the host is unreachable until all is prepared.
Attempt.objects.filter(status__in=["queued", "starting"]).update(status="stopped")
host = a_host(f"box{round_}", gpus=gpus, announced_at=None)
Host.objects.filter(pk=host.pk).update(inventory={**host.inventory, "port_range": [21000, 21063]})
for number in range(runs):
    a_run(f"{round_}-{number}", host=host, hardware=hardware)
Host.objects.filter(pk=host.pk).update(announced_at=timezone.now())
"""
DISPATCH = "result = [dispatching.dispatch_ready(), sent]"
LEASED = """
leases = Lease.objects.filter(host__name=f"box{round_}")
attempts = Attempt.objects.filter(run__host__name=f"box{round_}")
moves = RunEvent.objects.filter(attempt__in=attempts, kind="status", data__to="starting")
gpus = leases.filter(resource__startswith="gpu:").values_list("resource", flat=True)
launches = sum(attempts.values_list("launches_sent", flat=True))
result = [sorted(gpus), attempts.filter(status="starting").count(), moves.count(), launches]
"""
STARTED = """
Attempt.objects.exclude(status__in=["succeeded", "failed", "stopped"]).update(status="stopped")
Lease.objects.update(state="released")
host = Host.objects.filter(name="racetrack").first() or a_host("racetrack", cpu_slots=64)
Host.objects.filter(pk=host.pk).update(announced_at=timezone.now())
run = a_run("race", host=host)
attempt = run.attempts.get()
assert attempt.status == "starting", attempt.waits_for
result = attempt.pk
"""
FINAL_MOVES = """
attempt = Attempt.objects.get(pk=pk)
finals = RunEvent.objects.filter(attempt=attempt, kind="status", data__to__in=["succeeded", "failed", "stopped"])
result = {"status": attempt.status, "reason": attempt.reason, "finals": finals.count(),
          "held": attempt.leases.exclude(state="released").count(), "leases": attempt.leases.count()}
"""
TRAINING = """
line = [event(1, "training", max_steps=9, step=0)]
claiming.claim(Attempt.objects.get(pk=pk), claiming.Claim(1, "racetrack", 7, "boot-1"))
ingest.accept(Attempt.objects.get(pk=pk), line)
"""


@pytest.mark.parametrize(
    ("gpus", "hardware", "runs", "fit"),
    [
        (1, {"rollout": "colocate", "trainer_gpus": 1}, 3, 1),
        (4, {"rollout": "colocate", "trainer_gpus": 2}, 4, 2),
        (5, {"rollout": "server", "trainer_gpus": 1, "server": {"gpus": 1}}, 3, 2),
    ],
    ids=["one GPU", "pairs of GPUs", "GPUs and ports"],
)
def test_dispatchers_lease_each_gpu_once(
    racers: Racers, gpus: int, hardware: dict[str, Any], runs: int, fit: int
) -> None:
    for round_ in range(ROUNDS):
        here = f"-{gpus}-{round_}"
        racers.alone(QUEUED, round_=here, gpus=gpus, hardware=hardware, runs=runs)
        answers = racers.at_once(DISPATCH)
        leased, starting, moves, sent = racers.alone(LEASED, round_=here)
        assert len(leased) == len(set(leased))
        assert sum(started for started, _ in answers) == starting == moves == fit
        assert sum(len(messages) for _, messages in answers) == sent == fit


def test_who_takes_the_same_gpus_in_another_order_finds_them_taken(racers: Racers) -> None:
    """And does not wait for somebody who waits for them: the database would end one of the two with an error."""
    take = """
from django.db import IntegrityError, transaction
from runs.engine.scheduling import leasing
from workers.contract.run.spec import Placement
try:
    with transaction.atomic():
        host = Host.objects.get(name="racetrack")
        leasing.insert_leases(Attempt.objects.get(pk=pk), host, Placement("racetrack", gpus=gpus))
    result = True
except IntegrityError:
    result = False
"""
    for _ in range(ROUNDS):
        pk = racers.alone(STARTED)
        one_way, other = tuple(range(40)), tuple(reversed(range(40)))
        answers = racers.at_once(take, [{"pk": pk, "gpus": gpus} for gpus in (one_way, other, one_way, other)])
        assert answers.count(True) == 1


def test_ticks_resend_a_launch_once(racers: Racers) -> None:
    for _ in range(ROUNDS):
        pk = racers.alone(STARTED)
        long_ago = "Attempt.objects.filter(pk=pk).update(launch_sent_at=timezone.now() - timedelta(minutes=5))"
        racers.alone(long_ago, pk=pk)
        answers = racers.at_once("tick.tick(timezone.now())\nresult = sent")
        assert [task for sent in answers for task in sent] == ["workers.launch_run"]
        assert racers.alone("result = Attempt.objects.get(pk=pk).launches_sent", pk=pk) == 2


def test_ticks_end_a_launch_that_never_arrived_once(racers: Racers) -> None:
    pk = racers.alone(STARTED)
    gone = (
        "Attempt.objects.filter(pk=pk).update(launches_sent=3, launch_sent_at=timezone.now() - timedelta(seconds=40))"
    )
    racers.alone(gone, pk=pk)
    racers.at_once("tick.tick(timezone.now())")
    end = racers.alone(FINAL_MOVES, pk=pk)
    assert (end["reason"], end["finals"], end["held"]) == ("launch_failed", 1, 0)


def test_a_batch_that_comes_several_times_at_once_is_stored_once(racers: Racers) -> None:
    lines = "[event(1, 'training', max_steps=9, step=0), *map(train, range(2, upto)), event(upto, 'note', text='x')]"
    for _ in range(ROUNDS):
        pk = racers.alone(STARTED)
        acks = racers.at_once(
            f"result = ingest.accept(Attempt.objects.get(pk=pk), {lines})",
            [{"pk": pk, "upto": upto} for upto in (20, 20, 30, 40)],
        )
        look = "result = [sorted(MetricRow.objects.filter(attempt=pk).values_list('seq', flat=True)), "
        look += "sorted(RunEvent.objects.filter(attempt=pk, seq__gt=0).values_list('seq', flat=True))]"
        rows, events = racers.alone(look, pk=pk)
        assert sorted(rows + events) == list(range(1, max(acks) + 1))
        assert max(acks) == 40


def test_a_claim_is_given_to_one_supervisor(racers: Racers) -> None:
    ask = "result = claiming.claim(Attempt.objects.get(pk=pk), claiming.Claim(1, 'racetrack', pid, 'boot-1')).go"
    for _ in range(ROUNDS):
        pk = racers.alone(STARTED)
        answers = racers.at_once(ask, [{"pk": pk, "pid": pid} for pid in (11, 12, 13, 14)])
        assert answers.count(True) == 1


@pytest.mark.telling
def test_a_stop_and_the_end_at_once_end_a_run_once(racers: Racers) -> None:
    acts = [
        "stopping.request_stop(Attempt.objects.get(pk=pk), StopMode.SAVE, a_user())",
        "stopping.request_stop(Attempt.objects.get(pk=pk), StopMode.NOW, a_user())",
        "ingest.accept(Attempt.objects.get(pk=pk), [ended(2)])",
        "ending.end(Attempt.objects.get(pk=pk), EndReason.HOST_LOST, actor='x', proved_free=True)",
    ]
    racers.alone("a_user()")
    for _ in range(ROUNDS):
        pk = racers.alone(STARTED)
        racers.alone(TRAINING, pk=pk)
        racers.at_once("exec(act)", [{"pk": pk, "act": act} for act in acts])
        end = racers.alone(FINAL_MOVES, pk=pk)
        assert (end["finals"], end["held"]) == (1, 0)
        assert (end["status"], end["reason"]) in (("succeeded", "completed"), ("failed", "host_lost"))


def test_a_run_is_resumed_once(racers: Racers) -> None:
    ask = """
try:
    result = launching.resume(Run.objects.get(attempts=pk), a_user()).pk
except launching.NotResumable:
    result = None
"""
    for _ in range(ROUNDS):
        pk = racers.alone(STARTED)
        racers.alone("ending.end(Attempt.objects.get(pk=pk), EndReason.OOM, actor='x', proved_free=True)", pk=pk)
        answers = racers.at_once(ask, pk=pk)
        assert [bool(answer) for answer in answers].count(True) == 1


def test_rows_are_folded_once(racers: Racers) -> None:
    pk = racers.alone(STARTED)
    racers.alone("ingest.accept(Attempt.objects.get(pk=pk), [train(seq) for seq in range(1, 2501)])", pk=pk)
    racers.at_once("folding.fold_all()")
    look = "result = sum(MetricChunk.objects.filter(run__attempts=pk).values_list('points', flat=True))"
    assert racers.alone(look, pk=pk) == 2000


def test_of_two_admins_who_take_each_others_role_one_stays(racers: Racers) -> None:
    prepare = """
from controlplane.platform.accounts.models import Role, User
User.objects.filter(role=Role.ADMIN).update(role=Role.VIEWER)
for name in ("ada", "ben"):
    User.objects.update_or_create(username=name, defaults={"role": Role.ADMIN, "is_active": True})
"""
    act = """
from controlplane.platform.accounts.models import User
from django.test import Client
client = Client(headers={"host": "localhost"})
client.force_login(User.objects.get(username=who))
time.sleep(max(0.0, at + 0.3 - time.time()))
other = User.objects.get(username=whom)
result = client.post(f"/users/{other.pk}/", {"role": "viewer"}).status_code
"""
    look = "from controlplane.platform.accounts.models import User\nresult = User.objects.filter(role='admin').count()"
    for _ in range(ROUNDS):
        racers.alone(prepare)
        racers.at_once(act, [{"who": who, "whom": whom} for who, whom in [("ada", "ben"), ("ben", "ada")] * 2])
        assert racers.alone(look) == 1


def test_things_of_one_name_that_are_restored_at_once_get_names_of_their_own(racers: Racers) -> None:
    before = """
from controlplane.catalogue.rewards.models import RewardConfig
from controlplane.platform.accounts.models import User
from runs.engine.trash import deleting
from runs.engine.trash.kinds import KINDS
user = User.objects.get_or_create(username="ada")[0]
"""
    prepare = """
pks = []
for _ in range(4):
    pks.append(str(RewardConfig.objects.create(name=f"one{round_}").pk))
    deleting.delete(KINDS["reward"], pks[-1], user)
result = pks
"""
    look = "result = list(RewardConfig.objects.filter(pk__in=pks).values_list('name', flat=True))"
    for round_ in range(ROUNDS):
        pks = racers.alone(before + prepare, round_=round_)
        act = f"{before}result = deleting.restore(KINDS['reward'], mine, user)[0].name"
        racers.at_once(act, [{"mine": pk} for pk in pks])
        assert sorted(racers.alone(before + look, pks=pks)) == [f"one{round_}{end}" for end in ("", " 2", " 3", " 4")]


GROUPS = f"""{STARTED}
Attempt.objects.filter(status="starting").update(status="stopped")
Lease.objects.update(state="released")
made = [an_attempt("running", run=a_run(f"together {{number}}")) for number in range(6)]
result = [each.pk for each in made]
"""
TOGETHER = """
order = pks if me % 2 else pks[::-1]
for seq in range(1, 40):
    taken = ingest.accept_together([ingest.Delivery(pk, [train(seq), train(seq + 1)]) for pk in order])
result = [each.ack for each in taken]
"""


def test_groups_of_the_same_runs_in_any_order_store_each_line_once(racers: Racers) -> None:
    """As several web processes do when supervisors have sent their lines again."""
    pks = racers.alone(GROUPS)
    answers = racers.at_once(TOGETHER, [{"pks": pks, "me": number} for number in range(4)])
    assert answers == [[40] * 6] * 4
    stored = "result = [list(MetricRow.objects.filter(attempt=pk).order_by('seq').values_list('seq', flat=True))"
    assert racers.alone(f"{stored} for pk in pks]", pks=pks) == [list(range(1, 41))] * 6


def test_ticks_at_once_fold_and_judge_once(racers: Racers) -> None:
    pks = racers.alone(GROUPS)
    fill = "for pk in pks: ingest.accept(Attempt.objects.get(pk=pk), [train(seq) for seq in range(1, 1501)])"
    racers.alone(fill, pks=pks)
    racers.at_once("for _ in range(3): tick.tick(timezone.now())")
    counted = "points = [c.points for c in MetricChunk.objects.filter(run_id__in=[pk[:-2] for pk in pks])]"
    assert racers.alone(f"{counted}\nresult = [sum(points), len(points)]", pks=pks) == [6 * 1000, 6]
    folded = "result = sorted(set(Run.objects.filter(attempts__in=pks).values_list('folded_seq', flat=True)))"
    assert racers.alone(folded, pks=pks) == [1000]


def test_of_many_guesses_of_a_password_at_once_five_are_checked(racers: Racers) -> None:
    guess = """
from controlplane.platform.accounts import throttle
result = sum(throttle.begin_try(name, address) is not None for _ in range(15))
"""
    limit = "from controlplane.platform.accounts import throttle\nresult = throttle.PER_NAME_AND_ADDRESS"
    for round_ in range(ROUNDS):
        address = f"203.0.113.{round_}"
        assert sum(racers.at_once(guess, name=f"ann{round_}", address=address)) == racers.alone(limit)
