"""A run on a machine of SkyPilot, from the wish to the machine's end."""

from __future__ import annotations

import pytest
from django.utils import timezone

from runs.engine.machines import requests
from runs.engine.machines.models import MachineRequest, MachineSource
from runs.engine.scheduling import dispatching
from runs.engine.states import RunStatus
from tests.fakes.fake_skypilot import SkyPilotServer
from tests.runs.builders import ONE_GPU, a_run
from tests.runs.engine.machines.engine import joins
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
State = MachineRequest.State


def a_source(**options: str) -> MachineSource:
    chosen = {"secret": "SKY", "image": "registry.example.org/grpo-gpu:1.0", "infra": "aws/us-east-1", **options}
    source = {"name": "AWS", "kind": "skypilot", "control_url": "https://grpo.example.org", "options": chosen}
    return MachineSource.objects.create(**source, gpus=1, gpu_kind="H100", cpus=16)


def a_round() -> MachineRequest:
    MachineRequest.objects.update(looked_at=None)
    requests.reconcile(timezone.now())
    return MachineRequest.objects.get()


@pytest.mark.usefixtures("shared_redis")
def test_the_host_of_a_machine_has_the_list_price_of_its_instance_type(sky: SkyPilotServer) -> None:
    a_source(instance_type="p5.4xlarge")
    a_run(hardware=ONE_GPU)
    host = joins(a_round())
    a_round()
    host.refresh_from_db()
    assert (host.gpu_hour_price, host.currency) == (6.88, "$")


@pytest.mark.usefixtures("shared_redis")
def test_a_price_that_an_admin_has_set_stays(sky: SkyPilotServer) -> None:
    a_source(instance_type="p5.4xlarge")
    a_run(hardware=ONE_GPU)
    host = joins(a_round())
    host.gpu_hour_price = 5.0
    host.save()
    a_round()
    host.refresh_from_db()
    assert host.gpu_hour_price == 5.0


@pytest.mark.usefixtures("shared_redis")
def test_a_spot_machine_that_is_taken_back_ends_its_run_as_preempted(sky: SkyPilotServer) -> None:
    a_source(spot="yes")
    run = a_run(hardware=ONE_GPU)
    request = a_round()
    joins(request)
    sky.finish(sky.launches()[0], "SUCCEEDED")
    sky.has(request.handle, "UP")
    assert a_round().state == State.JOINED
    dispatching.dispatch_ready()
    sky.clusters.clear()
    assert a_round().state == State.LOST
    attempt = run.latest()
    assert attempt is not None
    assert attempt.reason == EndReason.HOST_PREEMPTED


def test_what_skypilot_says_of_a_launch_that_fails_is_what_the_request_says(sky: SkyPilotServer) -> None:
    a_source()
    a_run(hardware=ONE_GPU)
    a_round()
    sky.finish(sky.launches()[0], "FAILED", error=("ResourcesUnavailableError", "No launchable resource found."))
    request = a_round()
    assert request.state == State.FAILED
    assert request.sentence == "SkyPilot couldn't get a machine: No launchable resource found."


def test_a_machine_that_no_run_needs_any_more_is_withdrawn(sky: SkyPilotServer) -> None:
    a_source()
    run = a_run(hardware=ONE_GPU)
    a_round()
    run.attempts.update(status=RunStatus.STOPPED)
    assert a_round().state == State.RELEASED
    assert sky.launches()[0].status == "CANCELLED"
