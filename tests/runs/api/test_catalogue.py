from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.catalogue.datasets import worker
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.platform.accounts.models import ApiScope, Role
from tests.controlplane.people import make_user
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, rewards_named
from tests.runs.launch.new_run.launching_page import cpu_profile

pytestmark = pytest.mark.django_db
REWARDS = "name: mine\ncomponents:\n  - {name: format, function: think_tags, weight: 1.0}\n"


def uploaded(program, name="sums"):
    file = SimpleUploadedFile("sums.jsonl", b'{"q": "1+1", "a": "2"}\n')
    return program.client.post("/api/v1/datasets/upload", {"file": file, "name": name})


def test_a_file_becomes_a_dataset_and_a_second_one_of_its_name_does_not():
    program = Program()
    first = uploaded(program)
    assert first.status_code == 201, first.content
    assert program.get("datasets").json()["items"][0]["name"] == "sums"
    assert uploaded(program).status_code == 422
    assert DatasetVersion.objects.count() == 1


def test_a_mapping_needs_to_say_no_more_than_the_page_does():
    program = Program()
    uploaded(program)
    version = DatasetVersion.objects.get()
    worker.process(version)
    answer = program.post(f"datasets/{version.dataset_id}/1/mapping", {"values": {"prompt": "q", "answer": "a"}})
    assert answer.status_code == 200, answer.json()
    version.refresh_from_db()
    worker.process(version)
    assert program.get(f"datasets/{version.dataset_id}/1/rows").json()["items"][0]["answer"] == "2"


def test_a_reward_config_is_made_from_yaml_and_read_as_yaml():
    program = Program()
    made = program.post("rewards", {"document": REWARDS}).json()["item"]
    text = program.get(f"rewards/{made['config']}/1/yaml").content.decode()
    assert "name: mine" in text
    assert program.post("rewards", {"document": text}).status_code == 422  # the name is taken
    assert program.post("rewards", {"document": text.replace("mine", "yours")}).status_code == 201


@pytest.mark.parametrize("document", ["", "- 1", "name: x", REWARDS.replace("think_tags", "nothing")])
def test_a_document_that_is_no_reward_config_says_why(document):
    answer = Program().post("rewards", {"document": document})
    assert answer.status_code == 422
    assert answer.json()["error"]["what"]


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_custom_code_is_for_admins_with_a_token_for_that(role):
    source = "def reward(completions, **columns): return [0.0 for _ in completions]"
    document = f"name: x\ncomponents:\n  - {{name: mine, function: python, params: {{source: '{source}'}}}}\n"
    answer = Program(ApiScope.OPERATE, user=make_user(role)).post("rewards", {"document": document})
    assert answer.status_code == 403, answer.json()


def test_a_host_is_drained_and_taken_back():
    host, program = a_host(gpus=1), Program()
    assert program.patch(f"hosts/{host.pk}", {"draining": True}).json()["item"]["draining"]
    assert not program.patch(f"hosts/{host.pk}", {"draining": False}).json()["item"]["draining"]


def test_a_host_in_reach_is_neither_given_up_nor_removed():
    host, program = a_host(), Program()
    assert program.post(f"hosts/{host.pk}/give-up", {}).status_code == 409
    assert program.delete(f"hosts/{host.pk}").status_code == 409


def test_configs_are_listed_with_their_newest_version():
    rewards_named("tags")
    [listed] = Program(ApiScope.READ).get("rewards").json()["items"]
    assert (listed["name"], listed["version"]) == ("tags", 1)


def test_a_changed_reward_config_is_a_new_version_and_the_same_one_is_not():
    program = Program()
    config = program.post("rewards", {"document": REWARDS}).json()["item"]["config"]
    changed = REWARDS.replace("weight: 1.0", "weight: 0.5")
    saved = program.post(f"rewards/{config}", {"document": changed, "note": "halved", "based_on": 1})
    assert (saved.status_code, saved.json()["item"]["version"], saved.json()["item"]["note"]) == (201, 2, "halved")
    assert not program.post(f"rewards/{config}", {"document": changed}).json()["new"]
    late = program.post(f"rewards/{config}", {"document": REWARDS, "based_on": 1})
    assert (late.status_code, late.json()["error"]["where"]) == (409, "based_on")


def test_a_reward_config_is_archived_duplicated_and_deleted():
    program = Program()
    config = program.post("rewards", {"document": REWARDS}).json()["item"]["config"]
    assert program.post(f"rewards/{config}/1/duplicate").json()["item"]["name"] == "mine copy"
    assert program.patch(f"rewards/{config}", {"archived": True}).json()["item"]["archived"]
    assert program.post(f"rewards/{config}", {"document": REWARDS}).status_code == 409
    assert program.delete(f"rewards/{config}").status_code == 204
    assert program.get(f"rewards/{config}").status_code == 404


ENVIRONMENT = "name: arithmetic\nparts:\n  - {function: calculator}\n"


def test_an_environment_is_made_changed_and_duplicated():
    program = Program()
    made = program.post("environments", {"document": ENVIRONMENT}).json()["item"]
    path = f"environments/{made['environment']}"
    assert "calculator" in program.get(f"{path}/1/yaml").content.decode()
    saved = program.post(path, {"document": f"{ENVIRONMENT}limits: {{turns: 3}}\n"})
    assert (saved.status_code, saved.json()["item"]["limits"]["turns"]) == (201, 3)
    assert program.post(path, {"document": "name: x"}).status_code == 422
    assert program.post(f"{path}/2/duplicate").json()["item"]["name"] == "arithmetic copy"
    assert program.patch(path, {"archived": True}).json()["item"]["archived"]
    assert program.delete(path).status_code == 204


def test_a_profile_is_made_from_yaml_and_fields_changed_and_deleted():
    program = Program()
    document = program.get(f"profiles/{cpu_profile().pk}/yaml").content.decode()
    made = program.post("profiles", {"document": document, "values": {"name": "Mine"}}).json()["item"]
    assert made["hardware"] == {
        **program.get(f"profiles/{cpu_profile().pk}").json()["item"]["hardware"],
        "profile": "Mine",
    }
    path = f"profiles/{made['id']}"
    changed = program.patch(path, {"values": {"use_lora": True, "lora_r": 8}}).json()["item"]
    assert (changed["lora"]["r"], changed["name"]) == (8, "Mine")
    assert program.patch(path, {"values": {"lora_r": -1}}).json()["error"]["where"] == "values.lora_r"
    assert program.post("profiles", {"values": {"name": "Mine"}}).json()["error"]["where"] == "values.name"
    assert program.delete(path).status_code == 204


def test_a_profile_uses_the_memory_by_what_the_api_says_of_it():
    program = Program()
    row = HardwareProfile.objects.get(name="Dual GPU, LoRA hot-swap")
    path = f"profiles/{row.pk}"
    guide = program.get(f"{path}/memory").json()["item"]["guide"]
    assert guide == {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}
    assert program.patch(path, {"values": guide}).status_code == 200
    gain = program.get(f"{path}/memory?model=Qwen2.5 3B&card=80").json()["item"]["use_the_memory"]
    assert gain["gain"] > 1
    assert program.patch(path, {"values": gain["values"]}).json()["item"]["batch"] == row.batch
    assert program.get(f"profiles/{cpu_profile().pk}/memory").json()["item"]["use_the_memory"] is None


def test_a_preset_is_cloned_changed_and_deleted():
    program = Program()
    first = program.get("presets").json()["items"][0]
    assert program.patch(f"presets/{first['id']}", {"values": {"name": "x"}}).status_code == 409
    copied = program.post(f"presets/{first['id']}/copy").json()["item"]
    rule = next(name for name in copied["values"] if name.endswith("-on"))
    changed = program.patch(f"presets/{copied['id']}", {"values": {"name": "Ours", rule: False}}).json()["item"]
    assert (changed["name"], changed["values"][rule], changed["default"]) == ("Ours", False, False)
    assert program.patch(f"presets/{copied['id']}", {"default": True}).json()["item"]["default"]
    assert program.delete(f"presets/{copied['id']}").status_code == 409
