"""How many runs one person may have going and waiting, on every road by which a run is queued or started."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from controlplane.platform.accounts.models import User
from runs.engine import sentences
from runs.engine.hosts.view import host_views
from runs.engine.models import Attempt, ProfileTrial, Run
from runs.engine.scheduling import dispatching, ending, launching, limits
from runs.engine.scheduling.limits import Allowance, QueueFull
from runs.engine.states import RunStatus
from runs.launch.new_run.drafting import forecast
from runs.launch.preflight.draft import Draft
from tests.controlplane.people import admin, operator, signed_in
from tests.runs.builders import ONE_GPU, a_host, a_run, a_user, an_attempt
from tests.runs.conftest import Sent
from tests.runs.engine.scheduling.test_queue import dispatched, gpus, taken
from tests.runs.launch.new_run import launching_page
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def limited(**columns: int | None) -> User:
    user = a_user()
    User.objects.filter(pk=user.pk).update(**columns)
    user.refresh_from_db()
    return user


@pytest.mark.parametrize(("own", "everyones", "limit"), [(None, 0, 0), (None, 3, 3), (0, 3, 0), (5, 3, 5), (1, 0, 1)])
def test_a_persons_own_limit_goes_before_everybodys(
    own: int | None, everyones: int, limit: int, settings: Settings
) -> None:
    settings.MAX_RUNNING = settings.MAX_QUEUED = everyones
    user = limited(max_running=own, max_queued=own)
    assert (limits.max_running(user), limits.max_queued(user)) == (limit, limit)


@pytest.mark.parametrize(
    ("running", "most", "words"),
    [
        (1, 1, "waits until ana's running run ends (limit 1)"),
        (2, 2, "waits until one of ana's 2 running runs ends (limit 2)"),
        (5, 2, "waits until 4 of ana's 5 running runs end (limit 2)"),
    ],
)
def test_a_run_over_the_limit_says_for_how_many_it_waits(running: int, most: int, words: str) -> None:
    assert Allowance("ana", running, 0, most, 0).wait == words


def test_runs_over_the_limit_stay_queued_and_keep_nothing() -> None:
    a_host(gpus=4)
    limited(max_running=2)
    for name in ("a", "b", "c"):
        a_run(name, hardware=ONE_GPU)
    a_run("of another", hardware=gpus(2), user=a_user("ben"))
    assert dispatched() == {
        "a": "starts",
        "b": "starts",
        "c": "waits until one of olga's 2 running runs ends (limit 2)",
        "of another": "starts",
    }


def test_the_next_one_starts_when_one_ends(commits: Any) -> None:
    a_host(gpus=4)
    limited(max_running=1)
    a_run("a", hardware=ONE_GPU), a_run("b", hardware=ONE_GPU)
    dispatched()
    with commits(execute=True):
        ending.end(Attempt.objects.get(run__name="a"), EndReason.OOM, actor="test", proved_free=True)
    assert Attempt.objects.get(run__name="b").status == RunStatus.STARTING


def test_a_higher_limit_starts_what_waits(commits: Any) -> None:
    a_host(gpus=4)
    user = limited(max_running=1)
    a_run("a", hardware=ONE_GPU), a_run("b", hardware=ONE_GPU)
    dispatched()
    with commits(execute=True):
        admin().post(f"/users/{user.pk}/", {"role": user.role, "max_running": "2", "max_queued": ""})
    assert Attempt.objects.get(run__name="b").status == RunStatus.STARTING


def test_the_owner_counts_whoever_resumes() -> None:
    limited(max_queued=1)
    ended = a_run("ended")
    ending.end(ended.attempts.get(), EndReason.OOM, actor="test")
    a_run("waits")
    with pytest.raises(QueueFull, match="olga has 1 run in the queue and may have 1"):
        launching.resume(ended, a_user("ben"))


def test_a_full_queue_takes_no_more() -> None:
    limited(max_queued=2)
    a_run("a"), a_run("b")
    with pytest.raises(QueueFull, match="olga has 2 runs in the queue and may have 2"):
        a_run("c")
    a_run("of another", user=a_user("ben"))
    assert Run.objects.count() == 3


def test_a_run_that_has_started_is_in_the_queue_no_more() -> None:
    limited(max_queued=1)
    an_attempt(RunStatus.RUNNING)
    a_run("next")


# --- pages ---------------------------------------------------------------------------------------------------


def said(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_the_new_run_page_refuses_what_the_queue_has_no_room_for() -> None:
    launching_page.a_ready_host()
    client = signed_in(user=limited(max_queued=1))
    assert client.post("/runs/new/", launching_page.sent(key="one", name="one")).status_code == 302
    answer = client.post("/runs/new/", launching_page.sent(key="two", name="two"))
    assert answer.status_code == 422
    assert "olga has 1 run in the queue and may have 1." in said(answer)
    assert "Fix 1 problem first" in said(client.post("/runs/new/check", launching_page.sent()))
    # The second click of the launch that filled it.
    again = client.post("/runs/new/", launching_page.sent(key="one", name="one"))
    assert again.headers["Location"] == f"/runs/{Run.objects.get().pk}/"


def test_the_new_run_page_warns_that_a_launch_would_wait_for_the_limit() -> None:
    launching_page.a_ready_host(cpu_slots=3)
    client = signed_in(user=limited(max_running=1))
    an_attempt(RunStatus.RUNNING)
    shown = said(client.post("/runs/new/check", launching_page.sent()))
    assert "The run would be queued: it waits until olga&#x27;s running run ends (limit 1)." in shown
    assert "Waits until olga&#x27;s running run ends (limit 1)." in shown
    assert "Launch now" in said(operator().post("/runs/new/check", launching_page.sent()))


def test_a_resume_over_the_limit_is_told_on_the_page() -> None:
    limited(max_queued=1)
    ended = a_run("ended")
    ending.end(ended.attempts.get(), EndReason.OOM, actor="test")
    a_run("waits")
    answer = operator().post(f"/runs/{ended.pk}/resume", follow=True)
    assert "olga has 1 run in the queue and may have 1" in said(answer)
    assert ended.attempts.count() == 1


def test_a_trial_is_queued_whole_or_not_at_all() -> None:
    from tests.runs.launch.trials.test_trials import a_profile, asked

    host, client = launching_page.a_ready_host(cpu_slots=9), signed_in(user=limited(max_queued=2))
    profiles = [a_profile(f"p{n}") for n in range(3)]
    answer = client.post("/hardware/trials/new/", asked(host, *profiles))
    assert answer.status_code == 422
    assert "olga has 0 runs in the queue and may have 2; this would add 3." in said(answer)
    assert not Run.objects.exists()
    assert not ProfileTrial.objects.exists()
    assert client.post("/hardware/trials/new/", asked(host, *profiles[:2])).status_code == 302


@pytest.mark.parametrize(
    ("priority", "words"), [(0, "Queue: 1 ahead"), (1, "Launch now on box · GPU 1"), (-1, "Queue: 1 ahead")]
)
def test_the_forecast_knows_what_is_kept_and_who_is_before(priority: int, words: str) -> None:
    taken(a_host(gpus=2), "gpu:0")
    a_run("large", hardware=gpus(2))
    draft = Draft(hardware=HardwareSpec("one", Rollout.COLOCATE, trainer_gpus=1), priority=priority)
    assert forecast(draft, host_views()).button == words


def test_a_launch_may_have_a_priority() -> None:
    launching_page.a_ready_host()
    operator().post("/runs/new/", launching_page.sent(priority="1"))
    assert Attempt.objects.get().priority == 1


@pytest.mark.parametrize("priority", ["7", "x", "-1.5"])
def test_an_unknown_priority_is_refused(priority: str) -> None:
    launching_page.a_ready_host()
    assert operator().post("/runs/new/", launching_page.sent(priority=priority)).status_code == 422


def test_an_admin_sets_limits_and_takes_them_back() -> None:
    user, client = a_user(), admin()
    for sent, kept in ((("3", "0"), (3, 0)), (("", ""), (None, None))):
        client.post(f"/users/{user.pk}/", {"role": user.role, "max_running": sent[0], "max_queued": sent[1]})
        user.refresh_from_db()
        assert (user.max_running, user.max_queued) == kept


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "9" * 30])
def test_a_limit_is_a_whole_number(value: str) -> None:
    user = a_user()
    sent = {"role": user.role, "max_running": value, "max_queued": "1"}
    assert "was not changed. Maximum running runs:" in admin().post(f"/users/{user.pk}/", sent, follow=True).text
    user.refresh_from_db()
    assert user.max_queued is None


def test_limits_are_for_admins() -> None:
    assert operator().post(f"/users/{a_user().pk}/", {"max_running": "1"}).status_code == 403


def test_the_words_of_a_limit_are_shown_on_the_run(sent: Sent) -> None:
    a_host(gpus=1)
    limited(max_running=1)
    an_attempt(RunStatus.RUNNING)
    waiting = a_run("next", hardware=ONE_GPU)
    dispatching.dispatch_ready()
    attempt = waiting.attempts.get()
    assert sentences.of_attempt(attempt) == "Waits until olga's running run ends (limit 1)."
    assert attempt.waits_on is None
