"""Operators change the queue: where a run stands, its priority, and whether it waits at all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.platform.accounts.models import Role
from runs.engine import sentences
from runs.engine.models import Attempt, Priority, Run
from runs.engine.scheduling import dispatching, gpu_queue, reordering
from runs.engine.states import RunStatus
from tests.controlplane.people import make_user, operator, signed_in, viewer
from tests.runs.builders import ONE_GPU, a_host, a_run, a_user
from tests.runs.engine.scheduling.test_queue import gpus, taken

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def line() -> dict[str, Run]:
    """a, b, c and d wait; d has low priority."""
    runs = {name: a_run(name, priority=Priority.LOW if name == "d" else Priority.NORMAL) for name in "abcd"}
    for turn, run in enumerate(runs.values()):
        Attempt.objects.filter(run=run).update(turn=1000.0 + turn)
    return runs


def order() -> str:
    return "".join(attempt.run.name for attempt in gpu_queue.queued_attempts().select_related("run"))


def move(run: Run, put: str, other: Run | None = None, client: Client | None = None) -> Any:
    data = {"put": put, "other": other.pk if other else ""}
    return (client or operator()).post(f"/hardware/queue/{run.pk}/move", data, follow=True)


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


@pytest.mark.parametrize(
    ("name", "put", "other", "after"),
    [
        ("c", "first", "", "cabd"),
        ("c", "before", "b", "acbd"),
        ("d", "before", "c", "abdc"),
        ("d", "first", "", "dabc"),
        ("a", "after", "b", "bacd"),
        ("a", "after", "c", "bcad"),
        ("a", "after", "d", "bcda"),
        ("a", "first", "", "abcd"),
        ("a", "before", "b", "abcd"),
        ("c", "after", "a", "abcd"),
    ],
)
def test_a_run_is_put_where_it_was_asked_to_be(
    line: dict[str, Run], name: str, put: str, other: str, after: str
) -> None:
    for _ in range(2):  # a double click
        answer = move(line[name], put, line.get(other))
        assert answer.redirect_chain == [("/hardware/#queue", 302)]
        assert order() == after
    moved = line[name].events.filter(kind="queue_moved")
    assert moved.count() == (order() != "abcd")


def test_only_the_run_that_is_moved_changes(line: dict[str, Run]) -> None:
    before = {a.pk: (a.priority, a.turn) for a in gpu_queue.queued_attempts()}
    move(line["d"], "first")
    changed = [a.run.name for a in gpu_queue.queued_attempts() if before[a.pk] != (a.priority, a.turn)]
    assert changed == ["d"]
    assert line["d"].attempts.get().priority == Priority.NORMAL


def test_a_move_is_on_the_timeline_with_who_did_it(line: dict[str, Run]) -> None:
    move(line["d"], "first", client=signed_in(user=make_user(Role.OPERATOR, name="ana")))
    event = line["d"].events.get(kind="queue_moved")
    assert event.actor == "ana"
    assert (
        sentences.of_event(event)
        == "Moved in the queue from position 4 to position 1. Changed the priority from low to normal."
    )


def test_there_is_always_room_between_two(line: dict[str, Run]) -> None:
    for round_ in range(120):
        reordering.move_run(line["c" if round_ % 2 else "b"], a_user(), before=line["b" if round_ % 2 else "c"])
    assert order() == "acbd"
    turns = [attempt.turn for attempt in gpu_queue.queued_attempts()]
    assert len(set(turns)) == 4


def test_runs_of_the_same_instant_can_be_told_apart(line: dict[str, Run]) -> None:
    Attempt.objects.update(turn=1000.0, priority=Priority.NORMAL)
    first, second, *_ = [attempt.run for attempt in gpu_queue.queued_attempts().select_related("run")]
    assert reordering.move_run(second, a_user(), before=first)
    assert order()[:2] == second.name + first.name


def test_who_is_put_last_is_before_who_comes_then(line: dict[str, Run]) -> None:
    reordering.move_run(line["a"], a_user(), after=line["d"])
    a_run("e", priority=Priority.LOW)
    assert order() == "bcdae"


def test_a_priority_is_given_once_and_told(line: dict[str, Run]) -> None:
    for _ in range(2):
        operator().post(f"/hardware/queue/{line['c'].pk}/priority", {"priority": "1"})
    assert order() == "cabd"
    [event] = line["c"].events.filter(kind="priority")
    assert sentences.of_event(event) == "Changed the priority from normal to high."


@pytest.mark.parametrize("act", ["move", "priority", "remove/"])
def test_a_run_that_has_started_is_left_alone_and_the_person_told(act: str, line: dict[str, Run]) -> None:
    started = line["b"].attempts.get()
    Attempt.objects.filter(pk=started.pk).update(status=RunStatus.RUNNING)
    data = {"put": "first", "priority": "1"}
    answer = operator().post(f"/hardware/queue/{line['b'].pk}/{act}", data, follow=True)
    assert "left the queue" in text(answer)
    started.refresh_from_db()
    assert (started.status, started.priority, started.stop_mode) == ("running", 0, "")
    assert not line["b"].events.filter(kind__in=["queue_moved", "priority", "requested"]).exists()


def test_a_run_is_not_put_beside_one_that_has_started(line: dict[str, Run]) -> None:
    Attempt.objects.filter(run=line["a"]).update(status=RunStatus.RUNNING)
    assert "a has left the queue" in text(move(line["c"], "before", line["a"]))
    assert order() == "bcd"


@pytest.mark.parametrize(
    ("act", "data", "status"),
    [
        ("move", {}, 400),
        ("move", {"put": "last"}, 400),
        ("move", {"put": "before", "other": "nobody"}, 302),
        ("move", {"put": "before"}, 302),
        ("move", {"put": "before", "other": "x\x00"}, 302),
        ("priority", {}, 400),
        ("priority", {"priority": "2"}, 400),
        ("priority", {"priority": "high"}, 400),
    ],
)
def test_what_is_not_understood_changes_nothing(
    act: str, data: dict[str, str], status: int, line: dict[str, Run]
) -> None:
    assert operator().post(f"/hardware/queue/{line['b'].pk}/{act}", data).status_code == status
    assert operator().post(f"/hardware/queue/nobody/{act}", {"put": "first", "priority": "1"}).status_code == 404
    assert order() == "abcd"


def test_a_run_beside_itself_stays_where_it_is(line: dict[str, Run]) -> None:
    assert move(line["b"], "before", line["b"]).status_code == 200
    assert order() == "abcd"


def test_a_run_is_removed_after_a_page_that_says_so(line: dict[str, Run]) -> None:
    client, path = operator(), f"/hardware/queue/{line['b'].pk}/remove/"
    assert "is 2nd of 4 in the queue" in text(client.get(path))
    assert "b was removed from the queue." in text(client.post(path, follow=True))
    assert order() == "acd"
    assert (line["b"].attempts.get().status, line["b"].attempts.get().reason) == ("stopped", "cancelled")
    assert "b had already left the queue" in text(client.post(path, follow=True))
    assert "b has left the queue" in text(client.get(path))


def test_a_change_starts_what_it_lets_start(commits: Any) -> None:
    taken(a_host(gpus=4), "gpu:0")
    large, small = a_run("large", hardware=gpus(4)), a_run("small", hardware=ONE_GPU)
    dispatching.dispatch_ready()
    with commits(execute=True):
        move(small, "before", large)
    assert small.attempts.get().status == RunStatus.STARTING


# --- the pages -----------------------------------------------------------------------------------------------


def test_the_queue_has_acts_for_operators_alone(line: dict[str, Run]) -> None:
    a_host()
    shown, looked_at = text(operator().get("/hardware/")), text(viewer().get("/hardware/"))
    for word in ("Move b up", "Move b to the front", "Priority of b", f"/hardware/queue/{line['b'].pk}/remove/"):
        assert word in shown
        assert word not in looked_at
    for act in ("move", "priority", "remove/"):
        answer = viewer().post(f"/hardware/queue/{line['b'].pk}/{act}", {"put": "first", "priority": "1"})
        assert answer.status_code == 403


def test_the_queue_names_who_is_waited_for(line: dict[str, Run]) -> None:
    taken(a_host(gpus=2), "gpu:0", name="<b>holder</b>")
    a_run("large", hardware=gpus(2)), a_run("small", hardware=ONE_GPU)
    dispatching.dispatch_ready()
    shown, large = text(viewer().get("/hardware/")), Run.objects.get(name="large")
    assert "&lt;b&gt;holder&lt;/b&gt;</a>" in shown
    link = f'<a href="/runs/{large.pk}/">large</a> <span class="muted">(olga)</span>'
    assert f"Waits for GPU 1, reserved for {link}, which is ahead of it in the queue" in shown


def test_a_waiting_runs_page_names_its_place_and_who_it_waits_for() -> None:
    taken(a_host(gpus=1), "gpu:0")
    run = a_run("next", hardware=ONE_GPU)
    dispatching.dispatch_ready()
    shown, holder = text(viewer().get(f"/runs/{run.pk}/")), Run.objects.get(name="holder")
    assert '1st of 1 in the <a href="/hardware/#queue">queue</a>' in shown
    assert f'Waits for GPU 0, held by <a href="/runs/{holder.pk}/">holder</a> (olga).' in shown
    assert "1st of 1" in text(viewer().get("/runs/"))


def test_the_queue_and_the_list_take_a_fixed_number_of_queries(django_assert_max_num_queries: Any) -> None:
    taken(a_host(gpus=1), "gpu:0")
    for n in range(8):
        a_run(f"run {n}", hardware=ONE_GPU)
    dispatching.dispatch_ready()
    client = operator()
    for path, most in (("/hardware/", 11), ("/runs/", 14)):
        with django_assert_max_num_queries(most):
            client.get(path)
