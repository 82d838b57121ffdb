"""Hardware profiles: the shipped ones, making, changing, deleting, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.hardware.forms import ProfileForm, _spec_fields
from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.profiles import HELP, SHIPPED, problems
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_run
from workers.contract import HardwareSpec, from_dict

pytestmark = pytest.mark.django_db


def sent(**changes: Any) -> dict[str, Any]:
    """The form for the CPU as a browser sends it."""
    values = {name: default for name, (_, _, default) in _spec_fields().items()}
    values |= {"name": "mine", "description": "", "rollout": "transformers", "cpu_slots": 1} | changes
    return {name: value for name, value in values.items() if value is not None and value is not False}


def saved(**changes: Any) -> HardwareSpec:
    answer = operator().post("/hardware/profiles/new/", sent(**changes))
    assert answer.status_code == 302, answer.context["form"].errors
    return from_dict(HardwareSpec, HardwareProfile.objects.get(name=changes.get("name", "mine")).spec)


def refused(**changes: Any) -> dict[str, list[str]]:
    answer = operator().post("/hardware/profiles/new/", sent(**changes))
    assert answer.status_code == 422
    assert not HardwareProfile.objects.filter(name="mine").exists()
    return answer.context["form"].errors


@pytest.mark.parametrize("name", [name for name, _, _ in SHIPPED])
def test_the_shipped_profiles_are_there_and_can_run(name):
    spec = from_dict(HardwareSpec, HardwareProfile.objects.get(name=name).spec)
    assert problems(spec) == []


@pytest.mark.parametrize("name", [name for name, _, _ in SHIPPED])
def test_a_shipped_profile_goes_through_its_own_form(name):
    profile = HardwareProfile.objects.get(name=name)
    form = ProfileForm(profile=profile)
    values = {bound.name: bound.value() for bound in form if bound.value() is not None and bound.value() is not False}
    assert ProfileForm(values, profile=profile).is_valid()


def test_every_field_of_the_contract_has_help():
    assert set(_spec_fields()) == set(HELP)


def test_a_profile_is_made():
    assert saved(threads=2).threads == 2


def test_a_server_profile_is_made():
    spec = saved(rollout="server", trainer_gpus=1, server_weight_sync="lora", server_max_model_len="2048")
    assert spec.server is not None
    assert (spec.server.weight_sync, spec.server.max_model_len) == ("lora", 2048)


def test_a_profile_without_a_server_keeps_none():
    assert saved(server_gpus="-3", server_dtype="").server is None


BAD = [
    ({"name": ""}, "name"),
    ({"name": "cpu"}, "name"),
    ({"name": "x" * 81}, "name"),
    ({"cpu_slots": 0}, "cpu_slots"),
    ({"cpu_slots": "many"}, "cpu_slots"),
    ({"trainer_gpus": -1}, "trainer_gpus"),
    ({"trainer_gpus": 2}, "processes"),
    ({"processes": 0}, "processes"),
    ({"threads": 0}, "threads"),
    ({"rollout": "colocate"}, "rollout"),
    ({"rollout": "cloud"}, "rollout"),
    ({"rollout": "colocate", "trainer_gpus": 1, "colocate_memory_utilization": 1}, "colocate_memory_utilization"),
    ({"rollout": "server"}, "server_weight_sync"),
    ({"rollout": "server", "trainer_gpus": 1, "server_gpus": 0}, "server_weight_sync"),
    ({"rollout": "server", "trainer_gpus": 1, "server_gpus": 3, "server_tensor_parallel": 2}, "server_tensor_parallel"),
    ({"rollout": "server", "trainer_gpus": 1, "server_gpu_memory_utilization": 0}, "server_gpu_memory_utilization"),
    ({"rollout": "server", "trainer_gpus": 1, "server_gpu_memory_utilization": "nan"}, "server_gpu_memory_utilization"),
    ({"rollout": "server", "trainer_gpus": 1, "server_max_model_len": 0}, "server_max_model_len"),
    ({"rollout": "server", "trainer_gpus": 1, "server_dtype": "int3"}, "server_dtype"),
    ({"rollout": "server", "trainer_gpus": 1, "server_ready_timeout_s": 0}, "server_ready_timeout_s"),
]


@pytest.mark.parametrize(("changes", "field"), BAD, ids=[f"{f}: {c}" for c, f in BAD])
def test_what_could_not_run_is_refused_beside_its_field(changes, field):
    assert field in refused(**changes)


def test_an_empty_form_is_refused():
    assert operator().post("/hardware/profiles/new/", {}).status_code == 422


def test_a_profile_is_changed_under_its_own_name():
    profile = HardwareProfile.objects.get(name="CPU")
    assert operator().post(f"/hardware/profiles/{profile.pk}/", sent(name="CPU", threads=3)).status_code == 302
    profile.refresh_from_db()
    assert profile.spec["threads"] == 3


def test_a_deleted_profile_leaves_its_runs():
    run = a_run()
    assert operator().post(f"/hardware/profiles/{run.profile_id}/delete/").status_code == 302
    run.refresh_from_db()
    assert run.profile is None
    assert run.spec["hardware"]["cpu_slots"] == 1


def test_viewers_look_and_change_nothing():
    profile = HardwareProfile.objects.get(name="CPU")
    assert viewer().get(f"/hardware/profiles/{profile.pk}/").status_code == 200
    assert viewer().get("/hardware/profiles/new/").status_code == 403
    for path in ("new/", f"{profile.pk}/", f"{profile.pk}/delete/"):
        assert viewer().post(f"/hardware/profiles/{path}", sent()).status_code == 403


def test_deleting_takes_a_post():
    profile = HardwareProfile.objects.get(name="CPU")
    assert operator().get(f"/hardware/profiles/{profile.pk}/delete/").status_code == 405
    assert operator().put(f"/hardware/profiles/{profile.pk}/").status_code == 405


def test_a_profile_that_is_not_there():
    assert operator().get("/hardware/profiles/99999/").status_code == 404
