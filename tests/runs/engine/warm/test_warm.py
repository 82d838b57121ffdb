"""Warm servers: who gets one, who never does, when it ends, and what its host is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Lease, Run
from runs.engine.scheduling import dispatching, ending, leasing, limits
from runs.engine.spec import spec_of
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.engine.warm import lifecycle
from runs.engine.warm.models import WarmServer
from tests.runs.builders import FREE, a_host, a_run, a_user
from tests.runs.conftest import Sent
from workers.contract.reports.lines import Receipt
from workers.contract.run.hardware import WeightSync
from workers.contract.run.spec import LoraSpec, Placement, servers_of
from workers.contract.stack import commands, warm
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EndReason, Task

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

SERVER = {"gpus": 1, "weight_sync": "lora", "keep_warm_minutes": 15}
HARDWARE = {"rollout": "server", "trainer_gpus": 1, "server": SERVER}
ENDED = from_dict(Receipt, FREE)


@pytest.fixture(autouse=True)
def host() -> Host:
    return a_host(gpus=2)


def launched(name: str = "first", *, user: User | None = None, server: dict[str, Any] | None = None) -> Attempt:
    """After a pass of the dispatcher."""
    hardware = {**HARDWARE, "server": {**SERVER, **(server or {})}}
    run = a_run(name, hardware=hardware, lora=LoraSpec(r=16), user=user)
    dispatching.dispatch_ready()
    return run.latest()


def end(attempt: Attempt, *, receipt: Receipt | None = ENDED) -> None:
    attempt.refresh_from_db()
    assert ending.end(attempt, EndReason.STOPPED_BY_USER, actor="test", receipt=receipt)
    dispatching.dispatch_ready()


def the_server() -> WarmServer:
    return WarmServer.objects.get()


def end_the_server() -> None:
    end(the_server().attempt)


def held(attempt: Attempt) -> set[str]:
    return set(Lease.objects.filter(attempt=attempt, state=Lease.HELD).values_list("resource", flat=True))


def test_the_first_run_starts_a_server_with_a_lease_of_its_own(sent: Sent, commits: Any) -> None:
    with commits(execute=True):
        attempt = launched()
    server = the_server().attempt
    assert {attempt.status, server.status} == {RunStatus.STARTING}
    assert (held(attempt), held(server)) == ({"gpu:0"}, {"gpu:1", "port:21000"})
    assert [message[0]["attempt_id"] for message in sent.of(Task.LAUNCH_RUN)] == [server.pk, attempt.pk]
    (place,) = servers_of(dispatching.attempt_spec(attempt))
    assert (place.own, place.warm, place.port) == (False, server.pk, 21000)
    (own,) = servers_of(dispatching.attempt_spec(server))
    assert commands.served_name(dispatching.attempt_spec(server), own) == server.pk


def test_the_server_knows_nothing_of_its_run_but_the_model_and_the_servers() -> None:
    spec = spec_of(launched().run)
    of_server = spec_of(the_server().attempt.run)
    assert (of_server.model, of_server.hardware.server) == (spec.model, spec.hardware.server)
    assert (of_server.every_entry, of_server.sinks, of_server.grpo, of_server.start_from) == ((), (), {}, "")


def test_the_next_run_of_its_owner_takes_the_server_of_the_one_that_ended() -> None:
    end(launched())
    server = the_server()
    assert (server.used_by, server.idle_since is not None) == (None, True)
    second = launched("second")
    server.refresh_from_db()
    assert (second.status, server.used_by, server.idle_since) == (RunStatus.STARTING, second, None)
    assert second.placement["warm"] == {"attempt_id": server.pk, "ports": [21000]}
    assert held(second) == {"gpu:0"}


@pytest.mark.parametrize("other", ["person", "rank", "length", "environment"])
def test_a_run_that_is_not_alike_ends_an_idle_server_and_starts_its_own(other: str) -> None:
    end(launched())
    first = the_server()
    if other == "person":
        second = launched("second", user=a_user("otto"))
    elif other == "length":
        second = launched("second", server={"max_model_len": 512})
    else:
        hardware = {**HARDWARE, **({"environment": {"NCCL_DEBUG": "INFO"}} if other == "environment" else {})}
        run = a_run("second", hardware=hardware, lora=LoraSpec(r=64 if other == "rank" else 16))
        dispatching.dispatch_ready()
        second = run.latest()
    first.refresh_from_db()
    assert (second.status, first.leaving) == (RunStatus.QUEUED, lifecycle.GPUS_NEEDED)
    end(first.attempt)
    second.refresh_from_db()
    assert second.status == RunStatus.STARTING
    assert second.placement["warm"]["attempt_id"] == WarmServer.objects.exclude(pk=first.pk).get().pk


def test_a_run_that_needs_the_gpus_ends_only_as_many_idle_servers_as_it_takes() -> None:
    Host.objects.all().delete()
    a_host("large", gpus=4)
    first, second = launched(), launched("second")
    end(first)
    end(second)
    oldest, newest = WarmServer.objects.order_by("idle_since")
    run = a_run("colocated", hardware={"rollout": "colocate", "trainer_gpus": 3, "processes": 3})
    dispatching.dispatch_ready()
    oldest.refresh_from_db()
    newest.refresh_from_db()
    assert (run.latest().status, oldest.leaving, newest.leaving) == (RunStatus.QUEUED, lifecycle.GPUS_NEEDED, "")


def test_for_a_run_that_fits_one_idle_server_another_one_gives_way(host: Host) -> None:
    end(launched())
    mine = the_server()
    other = idle_server_of(a_run("other", hardware=HARDWARE, lora=LoraSpec(r=64)), host)
    third = launched("third")
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (third.status, mine.leaving, other.leaving) == (RunStatus.QUEUED, "", lifecycle.GPUS_NEEDED)
    end(other.attempt)
    third.refresh_from_db()
    assert third.placement["warm"]["attempt_id"] == mine.pk


def idle_server_of(run: Run, host: Host) -> WarmServer:
    """One that this run, which has left the queue, had on GPU 0."""
    attempt = run.latest()
    attempt.placement = {"warm": {"attempt_id": "rother-1", "ports": [21001]}}
    lifecycle.begin(attempt, host, spec_of(run), Placement(host.name, server_gpus=(0,), ports=(21001,)))
    move(attempt, RunStatus.STOPPED, reason=EndReason.CANCELLED, actor="test")
    lifecycle.detach(attempt, proved=True)
    return WarmServer.objects.get(pk="rother-1")


def test_a_server_in_use_gives_way_to_nobody() -> None:
    launched()
    waiting = launched("second", user=a_user("otto"))
    assert (waiting.status, the_server().leaving) == (RunStatus.QUEUED, "")


def test_two_runs_never_get_one_server() -> None:
    end(launched())
    second, third = a_run("second"), a_run("third")
    lifecycle.attach(second.latest(), the_server().pk)
    with pytest.raises(IntegrityError):
        lifecycle.attach(third.latest(), the_server().pk)


@pytest.mark.parametrize(("minutes", "leaves"), [(14, False), (16, True)])
def test_it_ends_after_its_time_without_a_run(minutes: int, leaves: bool) -> None:
    end(launched())
    lifecycle.end_idle(timezone.now() + timedelta(minutes=minutes))
    news = lifecycle.news(the_server().pk)
    assert news is not None
    assert news.leave == ("Ended after 15 minutes without a run." if leaves else "")
    if leaves:
        with pytest.raises(IntegrityError):
            lifecycle.attach(a_run("late").latest(), the_server().pk)


def test_a_run_that_is_not_proved_to_be_gone_takes_the_server_with_it() -> None:
    end(launched(), receipt=None)
    assert lifecycle.news(the_server().pk).leave == lifecycle.MAY_BE_IN_USE  # type: ignore[union-attr]


def test_one_that_a_person_ends_stays_until_its_run_has_ended() -> None:
    attempt = launched()
    assert lifecycle.end(the_server(), a_user())
    assert not lifecycle.end(the_server(), a_user())
    assert (lifecycle.news(the_server().pk).user, lifecycle.news(the_server().pk).leave) == (attempt.pk, "")  # type: ignore[union-attr]
    end(attempt)
    assert lifecycle.news(the_server().pk).leave == "Ended by olga."  # type: ignore[union-attr]


def test_a_server_that_has_died_or_was_stopped_is_given_to_nobody() -> None:
    end(launched())
    end_the_server()
    second = launched("second")
    assert second.placement["warm"]["attempt_id"] != the_server_of_first().pk


def the_server_of_first() -> WarmServer:
    return WarmServer.objects.get(attempt__status=RunStatus.STOPPED)


def test_smaller_cuda_graphs_than_a_run_reaches_make_another_server() -> None:
    spec = spec_of(launched().run)
    assert commands.largest_graph(spec) == 8
    larger = replace(spec, grpo={**spec.grpo, "per_device_train_batch_size": 64, "num_generations": 8})
    assert (warm.key(larger), warm.fits(8, larger), warm.fits(0, larger)) == (warm.key(spec), False, True)


def test_full_weights_and_shared_gpus_keep_no_server() -> None:
    spec = spec_of(launched().run)
    server = spec.hardware.server
    assert server is not None
    for changes in ({"weight_sync": WeightSync.NCCL}, {"shared": True}, {"keep_warm_minutes": 0}):
        hardware = replace(spec.hardware, server=replace(server, **changes))
        assert not warm.shares_servers(replace(spec, hardware=hardware))
    assert not warm.shares_servers(replace(spec, kind="trial"))


def test_a_server_counts_for_nobodys_limit() -> None:
    launched()
    assert limits.allowance(a_user()).running == 1


def test_a_placement_is_split_without_a_rest() -> None:
    spec = spec_of(launched().run)
    whole = Placement("box", gpus=(0,), server_gpus=(1,), ports=(21000, 21001), lora_kernels="0.31.0")
    trainer, server = warm.split(whole, spec, "rx-1")
    assert (trainer.lora_kernels, server.lora_kernels) == ("", "0.31.0")
    both = [*leasing.resources(trainer), *leasing.resources(server)]
    assert sorted(both) == sorted(leasing.resources(whole))
    assert Run.objects.filter(kind="warm").count() == 1
