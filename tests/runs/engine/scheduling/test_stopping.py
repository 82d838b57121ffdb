from __future__ import annotations

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.scheduling.stopping import request_stop, request_stops
from runs.engine.states import FINAL, RunStatus
from tests.runs.builders import ONE_GPU, a_host, a_run, a_user, an_attempt
from tests.runs.conftest import Sent
from tests.runs.engine.scheduling.test_queue import gpus, taken
from workers.contract.wire.names import StopMode, Task

pytestmark = pytest.mark.django_db
Commits = DjangoCaptureOnCommitCallbacks


@pytest.fixture
def running(sent: Sent, commits: Commits) -> Attempt:
    a_host()
    with commits(execute=True):
        a_run()
    return an_attempt(RunStatus.RUNNING, run=Attempt.objects.get().run)


def test_a_stop_is_an_intent_and_a_message_and_no_status(running: Attempt, sent: Sent, commits: Commits) -> None:
    with commits(execute=True):
        assert request_stop(running, StopMode.SAVE, a_user())
    running.refresh_from_db()
    assert (running.status, running.stop_mode) == (RunStatus.RUNNING, StopMode.SAVE)
    assert sent.of(Task.STOP_RUN) == [[running.run_id, 1, "save"]]
    assert RunEvent.objects.get(kind="requested").actor == "olga"


def test_save_may_become_now_but_never_the_other_way(running: Attempt) -> None:
    assert request_stop(running, StopMode.SAVE, a_user())
    first = running.stop_requested_at
    assert request_stop(running, StopMode.NOW, a_user("anna"))
    assert not request_stop(running, StopMode.SAVE, a_user())
    assert not request_stop(running, StopMode.NOW, a_user())
    running.refresh_from_db()
    assert (running.stop_mode, running.stop_requested_at) == (StopMode.NOW, first)


def test_a_queued_run_is_cancelled_at_once_and_nobody_told(sent: Sent, commits: Commits) -> None:
    attempt = an_attempt(RunStatus.QUEUED)
    with commits(execute=True):
        assert request_stop(attempt, StopMode.SAVE, a_user())
    assert (attempt.status, attempt.reason) == (RunStatus.STOPPED, "cancelled")
    assert not sent.messages


@pytest.mark.parametrize("status", sorted(FINAL))
def test_an_ended_attempt_has_nothing_to_stop(status: RunStatus, sent: Sent) -> None:
    assert not request_stop(an_attempt(status), StopMode.NOW, a_user())


def test_a_push_that_fails_leaves_the_intent(running: Attempt, sent: Sent, commits: Commits) -> None:
    sent.down = True
    with commits(execute=True):
        assert request_stop(running, StopMode.NOW, a_user())
    assert Attempt.objects.get().stop_mode == StopMode.NOW


@pytest.mark.django_db(transaction=True)
def test_of_several_that_are_stopped_none_is_started_first(sent: Sent) -> None:
    host = a_host(gpus=2)
    taken(host, "gpu:0")
    sent.messages.clear()
    a_run("large", hardware=gpus(2)), a_run("small", hardware=ONE_GPU), a_run("other", hardware=ONE_GPU)
    chosen = [Attempt.objects.get(run__name=name) for name in ("large", "small")]
    done = request_stops(chosen, StopMode.NOW, a_user())
    assert (done.cancelled, done.requested) == (2, 0)
    assert [spec["run"]["name"] for spec, _ in sent.of(Task.LAUNCH_RUN)] == ["other"]
