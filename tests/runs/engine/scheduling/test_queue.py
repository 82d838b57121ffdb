"""The queue: who may pass whom, what is kept for whom, and what a waiting run says."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.hardware.models import Host
from runs.engine import queries, sentences
from runs.engine.models import Attempt, Lease, Priority, Run
from runs.engine.scheduling import dispatching, gpu_queue, launching, stopping
from runs.engine.states import RunStatus
from tests.runs.builders import ONE_GPU, a_host, a_run, a_user
from tests.runs.conftest import Sent
from workers.contract.wire.names import EndReason

pytestmark = pytest.mark.django_db


def gpus(count: int, *ids: int, **more: Any) -> dict[str, Any]:
    pinned = {"trainer_gpu_ids": list(ids)} if ids else {}
    return {"rollout": "colocate", "trainer_gpus": count, **pinned, **more}


def taken(host: Host, *resources: str, state: str = Lease.HELD, name: str = "holder") -> Attempt:
    """A run that holds these."""
    attempt: Attempt = a_run(name, host=host).attempts.get()
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.RUNNING, host=host)
    for resource in resources:
        Lease.objects.create(attempt=attempt, host=host, resource=resource, state=state)
    return attempt


def dispatched() -> dict[str, str]:
    """After one walk through the queue: what each run that waited does now, `starts` or what it waits for."""
    line = list(gpu_queue.queued_attempts())
    dispatching.dispatch_ready()
    rows = Attempt.objects.select_related("run", "waits_on__owner").filter(pk__in=[attempt.pk for attempt in line])
    return {
        row.run.name: "starts" if row.status == RunStatus.STARTING else str(sentences.waiting(row))
        for row in rows.order_by(*gpu_queue.ORDER)
    }


def test_the_order_is_priority_then_turn(sent: Sent) -> None:
    for name in ("a", "b", "c", "d"):
        a_run(name)
    for name, columns in {
        "c": {"priority": Priority.HIGH},
        "a": {"priority": Priority.LOW},
        "d": {"turn": 1.0},
    }.items():
        Attempt.objects.filter(run__name=name).update(**columns)
    assert [attempt.run.name for attempt in gpu_queue.queued_attempts()] == ["c", "d", "b", "a"]
    places = gpu_queue.positions()
    for place, attempt in enumerate(gpu_queue.queued_attempts(), start=1):
        assert gpu_queue.position_of(attempt) == (place, 4)
        assert places[attempt.pk] == place
    assert [attempt.run.name for attempt in sorted(Attempt.objects.all(), key=gpu_queue.key)] == ["c", "d", "b", "a"]


def test_places_have_their_endings(subtests: pytest.Subtests) -> None:
    for place, words in [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd"), (112, "112th")]:
        with subtests.test(place=place):
            assert gpu_queue.ordinal(place) == words


def test_a_small_run_does_not_take_what_is_kept_for_a_large_one_before_it(sent: Sent) -> None:
    taken(a_host(gpus=4), "gpu:0", "gpu:1")
    a_run("large", hardware=gpus(4)), a_run("small", hardware=ONE_GPU)
    assert dispatched() == {
        "large": "waits for GPU 0 and 1 more, held by holder (olga)",
        "small": "waits for GPU 2, reserved for large (olga), which is ahead of it in the queue",
    }
    assert Attempt.objects.get(run__name="small").waits_on == Run.objects.get(name="large")


def test_a_small_run_that_needs_only_a_cpu_slot_passes(sent: Sent) -> None:
    taken(a_host(gpus=4), "gpu:0", "gpu:1")
    a_run("large", hardware=gpus(4)), a_run("small")
    assert dispatched()["small"] == "starts"


def test_a_small_run_takes_what_a_pinned_one_does_not_want(sent: Sent) -> None:
    taken(a_host(gpus=4), "gpu:3")
    a_run("large", hardware=gpus(2, 2, 3)), a_run("small", hardware=ONE_GPU), a_run("next", hardware=gpus(2))
    said = dispatched()
    assert said["small"] == "starts"
    assert Attempt.objects.get(run__name="small").placement["gpus"] == [0]  # type: ignore[index]
    assert said["next"] == "waits for GPU 2, reserved for large (olga), which is ahead of it in the queue"


def test_no_more_is_kept_than_the_run_needs(sent: Sent) -> None:
    taken(a_host(gpus=4, cpu_slots=1), "cpu:0")
    a_run("large", hardware=gpus(2, cpu_slots=1)), a_run("small", hardware=gpus(2)), a_run("third", hardware=ONE_GPU)
    said = dispatched()
    assert said["large"] == "waits for CPU slot 0, held by holder (olga)"
    assert said["small"] == "starts"
    assert said["third"].startswith("waits for GPU 0, reserved for large")


def test_kept_on_every_host_on_which_it_can_run(sent: Sent) -> None:
    one, two, tiny = a_host("one", gpus=2), a_host("two", gpus=2), a_host("tiny", gpus=1)
    taken(one, "gpu:0"), taken(two, "gpu:1", name="other")
    a_run("large", hardware=gpus(2)), a_run("small", hardware=ONE_GPU), a_run("third", hardware=ONE_GPU)
    said = dispatched()
    assert said["large"] == "waits for GPU 0 of one, held by holder (olga)"
    assert said["small"] == "starts"
    assert Attempt.objects.get(run__name="small").host == tiny
    assert said["third"].startswith("waits for GPU 1 of one, reserved for large")


def test_a_run_that_asked_for_one_host_keeps_nothing_on_another(sent: Sent) -> None:
    one = a_host("one", gpus=2)
    a_host("two", gpus=2)
    taken(one, "gpu:0")
    a_run("large", host=one, hardware=gpus(2)), a_run("small", hardware=gpus(2))
    assert dispatched()["small"] == "starts"


@pytest.mark.parametrize(
    ("columns", "hardware"),
    [
        ({}, gpus(8)),
        ({}, gpus(1, 7)),
        ({"draining": True}, gpus(2)),
        ({"announced_at": None}, gpus(2)),
    ],
)
def test_what_only_a_persons_act_can_start_holds_nobody_up(
    columns: dict[str, Any], hardware: dict[str, Any], sent: Sent
) -> None:
    """Too large for every host, or asked for one that takes nothing."""
    box = a_host("box", gpus=2, **columns)
    other = a_host("other", gpus=2)
    taken(other, "gpu:0")
    taken(box, "gpu:0", name="one more")
    a_run("stuck", host=box if columns else None, hardware=hardware), a_run("small", hardware=ONE_GPU)
    assert dispatched()["small"] == "starts"


def test_a_sick_gpu_does_not_shut_its_host(sent: Sent) -> None:
    taken(a_host(gpus=4), "gpu:3", state=Lease.QUARANTINED, name="dead")
    a_run("large", hardware=gpus(4)), a_run("small", hardware=ONE_GPU)
    assert dispatched() == {
        "large": "waits for GPU 3, in quarantine after dead (olga): it was not proved free",
        "small": "starts",
    }


def test_what_a_run_can_have_without_the_sick_gpu_is_kept_for_it(sent: Sent) -> None:
    host = a_host(gpus=4)
    taken(host, "gpu:3", state=Lease.QUARANTINED, name="dead"), taken(host, "gpu:0")
    a_run("large", hardware=gpus(3)), a_run("small", hardware=ONE_GPU)
    said = dispatched()
    assert said["large"] == "waits for GPU 0, held by holder (olga)"
    assert said["small"].startswith("waits for GPU 1, reserved for large")


def test_a_port_of_a_run_that_will_end_counts_as_one_to_come(sent: Sent) -> None:
    server = {"rollout": "server", "trainer_gpus": 1, "server": {"gpus": 1, "port": 21000}}
    host = a_host(gpus=3)
    host.inventory["listening"] = [21000]
    host.save()
    taken(host, "gpu:0", "port:21000")
    a_run("server", hardware=server), a_run("small", hardware=gpus(2))
    said = dispatched()
    assert said["server"] == "waits for port 21000, held by holder (olga)"
    assert said["small"].startswith("waits for GPU 1 and 1 more, reserved for server")


def test_what_was_kept_goes_to_the_next_when_a_waiting_run_is_stopped(sent: Sent, commits: Any) -> None:
    taken(a_host(gpus=4), "gpu:0")
    large = a_run("large", hardware=gpus(4))
    a_run("small", hardware=ONE_GPU)
    assert dispatched()["small"] != "starts"
    with commits(execute=True):
        assert stopping.cancel(large.attempts.get(), a_user("ana"))
    assert Attempt.objects.get(run__name="small").status == RunStatus.STARTING


def test_what_is_released_during_a_walk_is_not_for_those_behind(sent: Sent) -> None:
    host = a_host(gpus=2)
    holder = taken(host, "gpu:0")
    capacity = gpu_queue.Capacity.read()
    large, small = a_run("large", hardware=gpus(2)), a_run("small", hardware=ONE_GPU)
    capacity.reserve(gpu_queue.need_of(large), None, large)
    holder.leases.update(state=Lease.RELEASED)
    capacity.read_again()
    assert isinstance(capacity.find(gpu_queue.need_of(small), None), gpu_queue.Shortage)


def test_a_run_that_starts_waits_for_nothing_any_more(sent: Sent) -> None:
    holder = taken(a_host(gpus=1), "gpu:0")
    a_run("next", hardware=ONE_GPU)
    dispatched()
    holder.leases.update(state=Lease.RELEASED)
    assert dispatched() == {"next": "starts"}
    attempt = Attempt.objects.get(run__name="next")
    assert (attempt.waits_for, attempt.waits_how, attempt.waits_on) == ("", "", None)


def test_the_figures_of_a_waiting_run_name_its_place(sent: Sent) -> None:
    for name in ("a", "b"):
        a_run(name)
    told = [queries.summary(run)["place"] for run in queries.with_attempts(Run.objects.order_by("name"))]
    assert told == ["1st of 2", "2nd of 2"]


def test_a_resumed_run_keeps_its_priority_and_queues_anew(sent: Sent) -> None:
    run = a_run("again", priority=Priority.HIGH)
    first = run.attempts.get()
    stopping.cancel(first, a_user())
    second = launching.resume(run, a_user())
    assert second.priority == Priority.HIGH
    assert second.turn > first.turn


def unreadable(run: Run) -> Run:
    """As after a downgrade."""
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "hardware": {"rollout": "telepathy"}})
    return run


def test_a_run_whose_spec_is_not_read_any_more_ends_and_the_queue_goes_on(sent: Sent) -> None:
    a_host()
    sick = unreadable(a_run("sick")).attempts.get()
    a_run("well")
    assert dispatched()["well"] == "starts"
    sick.refresh_from_db()
    assert (sick.status, sick.reason) == (RunStatus.FAILED, EndReason.LAUNCH_FAILED)
    assert sick.detail.startswith("The run's spec can't be read: ")


def test_a_forecast_passes_over_a_run_whose_spec_is_not_read_any_more(sent: Sent) -> None:
    unreadable(a_run("sick")), a_run("well")
    sick, well = (found for _, found in gpu_queue.Capacity.read().walk(gpu_queue.queued_attempts()))
    assert isinstance(sick, gpu_queue.Shortage)
    assert sick.text.startswith("its spec can't be read: ")
    assert isinstance(well, gpu_queue.Shortage)
    assert well.text == "no host is known yet"
