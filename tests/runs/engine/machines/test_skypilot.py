"""Machines of SkyPilot, against an API server on loopback that behaves as the real one."""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import yaml

from controlplane.platform.accounts import vault
from controlplane.platform.accounts.models import Secret
from runs.engine.machines.models import KINDS
from runs.engine.machines.provider import EngineError, MachinePhase, MachineShape
from runs.engine.machines.skypilot import server as client
from runs.engine.machines.skypilot import task
from runs.engine.machines.skypilot.provider import SkyPilot
from tests.controlplane.people import admin
from tests.controlplane.platform.accounts.secret_rows import an_endpoint
from tests.fakes import fake_skypilot
from tests.fakes.fake_skypilot import SkyPilotServer

pytestmark = pytest.mark.django_db
CODE = "c0de" * 10
SHAPE = MachineShape(gpus=2, cpus=16, minutes=600, idle_minutes=10, memory_gib=64, gpu_kind="H100")
OPTIONS = {"secret": "SKY", "image": "registry.example.org/grpo-gpu:1.0", "infra": "aws/us-east-1", "spot": "yes"}


def provider(**options: str) -> SkyPilot:
    return SkyPilot("https://grpo.example.org", {**OPTIONS, **options})


def asked(**options: str) -> str:
    return provider(**options).request(SHAPE, name="cloud-1", join=CODE)


def rendered(shape: MachineShape = SHAPE, **options: str) -> dict[str, Any]:
    merged = {**OPTIONS, **options}
    return task.render(shape, merged, control_url="https://grpo.example.org", name="cloud-1", join=CODE, hooks=True)


def test_a_machine_is_asked_for_once_under_one_name(sky: SkyPilotServer) -> None:
    handle = asked()
    assert asked() == handle
    sky.finish(sky.launches()[0], "SUCCEEDED")
    sky.has(handle, "UP")
    assert asked() == handle
    assert len(sky.launches()) == 1


def test_the_task_holds_the_code_as_a_secret_alone(sky: SkyPilotServer) -> None:
    asked()
    body = sky.launches()[0].body
    sent = yaml.safe_load(body["task"])
    assert sent["secrets"] == {task.JOIN_CODE: CODE}
    assert body["task"].count(CODE) == 1
    assert body["retry_until_up"] is True
    assert sent["config"]["hooks"], "the server is new enough"


def test_two_control_planes_share_a_server(sky: SkyPilotServer) -> None:
    other = SkyPilot("https://other.example.org", OPTIONS)
    assert other.request(SHAPE, name="cloud-1", join=CODE) != asked()
    assert len(sky.launches()) == 2


def test_a_machine_is_queued_then_starts_then_runs_then_ends(sky: SkyPilotServer) -> None:
    handle, phases = asked(), []
    launch = sky.launches()[0]
    phases.append(provider().state(handle).phase)
    sky.has(handle, "INIT", init_status_reason="Launching on aws/us-east-1")
    phases.append(provider().state(handle).phase)
    sky.finish(launch, "SUCCEEDED")
    sky.has(handle, "UP", cloud="AWS", region="us-east-1")
    phases.append(provider().state(handle).phase)
    sky.has(handle, "AUTOSTOPPING")
    phases.append(provider().state(handle).phase)
    sky.clusters.clear()
    end = provider().state(handle)
    assert [*phases, end.phase] == [
        MachinePhase.QUEUED,
        MachinePhase.STARTING,
        MachinePhase.RUNNING,
        MachinePhase.RUNNING,
        MachinePhase.ENDED,
    ]


@pytest.mark.parametrize(("spot", "taken_back"), [("yes", True), ("no", False)])
def test_a_spot_machine_that_is_gone_may_have_been_taken_back(sky: SkyPilotServer, spot: str, taken_back: bool) -> None:
    handle = asked(spot=spot)
    sky.finish(sky.launches()[0], "SUCCEEDED")
    assert provider(spot=spot).state(handle).taken_back is taken_back


def test_a_launch_that_fails_ends_with_what_skypilot_said(sky: SkyPilotServer) -> None:
    handle = asked()
    error = ("ResourcesUnavailableError", "\x1b[33mNo launchable resource\nfound.\x1b[0m")
    sky.finish(sky.launches()[0], "FAILED", error=error)
    state = provider().state(handle)
    assert (state.phase, state.sentence) == (
        MachinePhase.ENDED,
        "SkyPilot couldn't get a machine: No launchable resource found.",
    )


def test_what_a_failed_launch_leaves_is_removed_before_it_counts_as_ended(sky: SkyPilotServer) -> None:
    handle = asked()
    sky.finish(sky.launches()[0], "FAILED", error=("CommandError", "setup failed"))
    sky.has(handle, "INIT")
    assert provider().state(handle).phase == MachinePhase.STARTING
    assert provider().state(handle).phase == MachinePhase.ENDED
    assert not sky.clusters


def test_what_a_failed_launch_leaves_is_removed_once(sky: SkyPilotServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.engine.machines.skypilot.provider.REMOVAL_WAIT_S", 0.2)
    sky.downs_finish = False
    handle = asked()
    sky.finish(sky.launches()[0], "CANCELLED")
    sky.has(handle, "INIT")
    said = [provider().state(handle).sentence for _ in range(2)]
    assert said == ["The request was withdrawn. What is left of it is being removed."] * 2
    assert [each.name for each in sky.asked].count("sky.down") == 1


def test_an_unhealthy_machine_has_not_ended(sky: SkyPilotServer) -> None:
    handle = asked()
    sky.finish(sky.launches()[0], "SUCCEEDED")
    sky.has(handle, "INIT", init_kind="unhealthy", init_status_reason="node terminated")
    state = provider().state(handle)
    assert state.phase == MachinePhase.RUNNING
    assert state.sentence == "SkyPilot reports that the machine is unhealthy: node terminated."


def test_a_machine_that_the_server_never_heard_of_is_lost(sky: SkyPilotServer) -> None:
    assert provider().state("grpo-cloud-9-000000").phase == MachinePhase.LOST


def test_a_machine_whose_launch_the_server_has_forgotten_has_ended(sky: SkyPilotServer) -> None:
    handle = asked()
    sky.has(handle, "UP")
    sky.asked.clear()  # it keeps requests for a day
    assert provider().state(handle).phase == MachinePhase.RUNNING
    sky.clusters.clear()
    assert provider().state(handle).phase == MachinePhase.ENDED


def test_release_withdraws_a_launch_that_has_no_machine_yet(sky: SkyPilotServer) -> None:
    handle = asked()
    provider().release(handle)
    state = provider().state(handle)
    assert (state.phase, state.sentence) == (MachinePhase.ENDED, "The request was withdrawn.")


def test_release_removes_the_machine_and_again_is_no_error(sky: SkyPilotServer) -> None:
    handle = asked()
    sky.finish(sky.launches()[0], "SUCCEEDED")
    sky.has(handle, "UP")
    provider().release(handle)
    provider().release(handle)
    assert provider().state(handle).phase == MachinePhase.ENDED


def test_a_removal_that_takes_long_is_begun_once(sky: SkyPilotServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.engine.machines.skypilot.provider.REMOVAL_WAIT_S", 0.2)
    sky.downs_finish = False
    handle = asked()
    sky.finish(sky.launches()[0], "SUCCEEDED")
    sky.has(handle, "UP")
    provider().release(handle)
    provider().release(handle)
    assert [each.name for each in sky.asked].count("sky.down") == 1
    assert provider().state(handle).phase == MachinePhase.RUNNING


def test_a_wrong_token_is_said_with_the_remedy(sky: SkyPilotServer) -> None:
    Secret.objects.all().delete()
    an_endpoint("SKY", "sky_wrong", kind=Secret.Kind.ENGINE, address=sky.url, private_too=True)
    with pytest.raises(EngineError, match=r"rejected the token \(401\).*Settings, Secrets"):
        asked()


def test_a_missing_secret_is_named(db: None) -> None:
    assert "no secret SKY" in KINDS["skypilot"].problems(OPTIONS)["secret"]
    with pytest.raises(EngineError, match="no secret SKY of the kind “API server of SkyPilot”"):
        asked()


def test_a_secret_for_judges_is_not_taken_for_it(db: None) -> None:
    an_endpoint("SKY")
    with pytest.raises(EngineError, match="no secret SKY"):
        asked()


def test_a_server_that_is_away_is_named(sky: SkyPilotServer) -> None:
    Secret.objects.all().delete()
    an_endpoint("SKY", "", kind=Secret.Kind.ENGINE, address="http://127.0.0.1:9", private_too=True)
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:9 is unreachable: The connection failed"):
        provider().state("grpo-cloud-1-000000")


def test_no_answer_in_time_is_said(sky: SkyPilotServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.engine.machines.skypilot.provider.CALL_S", 0.3)
    monkeypatch.setattr(sky, "finish", lambda *_, **__: None)
    with pytest.raises(EngineError, match="in time"):
        asked()
    monkeypatch.undo()


def test_a_refused_body_is_never_repeated(sky: SkyPilotServer) -> None:
    api = client.Server(sky.url, fake_skypilot.TOKEN, user="0a1b2c3d", private_too=True, seconds=5)
    with pytest.raises(EngineError) as caught:
        api.submit("/launch", {"task": {"secrets": {task.JOIN_CODE: CODE}}})
    assert "body.task: Not a string" in str(caught.value)
    assert CODE not in str(caught.value)


def test_a_machine_would_never_join_by_plain_http(sky: SkyPilotServer) -> None:
    with pytest.raises(EngineError, match="join only over https"):
        SkyPilot("http://grpo.example.org", OPTIONS).request(SHAPE, name="cloud-1", join=CODE)
    assert not sky.asked


def test_a_gpu_without_a_kind_cannot_be_asked_for(sky: SkyPilotServer) -> None:
    with pytest.raises(EngineError, match="needs a GPU type"):
        provider().request(replace(SHAPE, gpu_kind=""), name="cloud-1", join=CODE)


def test_an_instance_type_stands_for_gpus_cores_and_memory() -> None:
    assert rendered()["resources"].items() >= {"accelerators": {"H100": 2}, "cpus": "16+", "memory": "64+"}.items()
    resources = rendered(replace(SHAPE, gpu_kind=""), instance_type="p5.48xlarge")["resources"]
    assert resources["instance_type"] == "p5.48xlarge"
    assert not resources.keys() & {"accelerators", "cpus", "memory"}


def test_an_instance_type_of_aws_settles_the_shape() -> None:
    settled = KINDS["skypilot"].settles({**OPTIONS, "instance_type": "g5.12xlarge"})
    shape = {"gpus": 4, "gpu_kind": "A10G", "gpu_memory_gib": 22, "cpus": 48, "memory_gib": 192}
    assert settled == shape
    assert KINDS["skypilot"].settles({**OPTIONS, "instance_type": "a2-highgpu-1g"}) == {}


@pytest.mark.parametrize(
    ("changed", "usd"),
    [
        ({"spot": "no"}, "6.88"),
        ({"spot": "no", "infra": "AWS/us-east-1/us-east-1a"}, "6.88"),
        ({"spot": "yes"}, None),
        ({"spot": "no", "infra": "aws/eu-west-1"}, None),
        ({"spot": "no", "infra": ""}, None),
    ],
)
def test_a_gpu_hour_has_the_list_price_where_that_is_what_is_charged(changed: dict[str, str], usd: str | None) -> None:
    price = KINDS["skypilot"].gpu_hour_usd({**OPTIONS, "instance_type": "p5.48xlarge", **changed})
    assert price == (Decimal(usd) if usd else None)


def test_the_machine_goes_when_the_host_has_left_and_when_its_time_is_up() -> None:
    wanted = rendered()
    assert wanted["resources"]["autostop"] == {"idle_minutes": 1, "down": True, "wait_for": "jobs"}
    assert "timeout --signal=TERM --kill-after=240s 600m" in wanted["run"]
    assert "GRPO_LEAVE_AFTER_S=600" in wanted["run"]
    assert "GRPO_STOP_REASON=host_preempted" in wanted["run"]


@pytest.mark.parametrize(("spot", "notice"), [("no", 230), ("yes", 110)])
def test_the_host_is_told_how_long_it_has_once_it_is_taken_back(spot: str, notice: int) -> None:
    assert f"GRPO_STOP_NOTICE_S={notice} " in rendered(spot=spot)["run"]


def test_its_scripts_are_well_formed() -> None:
    wanted = rendered()
    for script in (wanted["run"], wanted["config"]["hooks"][0]["run"]):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "secret": "sky",
        "image": "-v /:/host x",
        "infra": "aws us",
        "spot": "maybe",
        "disk_gib": "0",
        "most_usd": "0",
    }.items(),
)
def test_options_that_skypilot_would_misread_are_refused(sky: SkyPilotServer, name: str, text: str) -> None:
    assert KINDS["skypilot"].problems(OPTIONS) == {}
    assert name in KINDS["skypilot"].problems({**OPTIONS, name: text})


@pytest.mark.skipif(importlib.util.find_spec("sky") is None, reason="skypilot isn't installed; it never is by a lock")
@pytest.mark.parametrize("options", [{}, {"infra": "kubernetes/team", "spot": "no"}, {"most_usd": "3.5"}])
def test_skypilots_own_schema_accepts_the_task(options: dict[str, str]) -> None:
    from sky.utils import common_utils, dag_utils, schemas  # type: ignore[import-not-found]

    wanted = rendered(**options)
    common_utils.validate_schema(wanted, schemas.get_task_schema(), "task: ")
    common_utils.validate_schema(wanted["resources"], schemas.get_resources_schema(), "resources: ")
    dag_utils.load_dag_from_yaml_str(task.as_yaml(wanted))


def test_the_tasks_fields_are_those_of_skypilots_schema() -> None:
    """As of 0.14.1; the test above asks the package itself where it is installed."""
    wanted = rendered(most_usd="3.5", disk_gib="512")
    assert wanted.keys() <= {"name", "num_nodes", "resources", "secrets", "config", "run"}
    assert wanted["resources"].keys() <= {
        "image_id", "use_spot", "autostop", "infra", "disk_size", "max_hourly_cost", "instance_type", "accelerators",
        "cpus", "memory",
    }  # fmt: skip


def test_an_admin_enters_the_api_server_as_a_secret() -> None:
    server = {"name": "SKY", "kind": "engine", "address": "https://sky.example.org/", "key": "sky_token"}
    page = admin().post("/settings/secrets/", server, follow=True).content.decode()
    assert "Sources of machines can name it." in page
    assert '<span class="muted">sources of machines</span>' in page
    assert vault.engine("SKY") == (Secret.objects.get(), "sky_token")
    assert vault.problem("SKY"), "no reward gets it"
