"""Configs of other tools, imported into the New run form over HTTP."""

from __future__ import annotations

import html
import io
import json
import os
import zipfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.shipped import by_slug
from controlplane.catalogue.rewards import saving
from runs.engine.models import Run
from tests.controlplane.people import operator, viewer
from tests.runs.launch.new_run.launching_page import a_ready_host, a_version, sent

pytestmark = pytest.mark.django_db

AXOLOTL = """\
base_model: Qwen/Qwen2.5-0.5B
rl: grpo
trl:
  beta: 0.02
  use_vllm: true
  num_generations: 4
  max_completion_length: 256
vllm:
  gpu_memory_utilization: 0.8
micro_batch_size: 4
gradient_accumulation_steps: 8
sequence_len: 512
learning_rate: 5e-6
num_epochs: 2
"""


@pytest.fixture
def client(settings: Any) -> Client:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    a_ready_host()
    return operator()


def imported(client: Client, text: str | bytes, status: int = 200, **typed: Any) -> Any:
    """The page after a paste (text) or an upload (bytes)."""
    document = {"import_text": text} if isinstance(text, str) else {"import_file": SimpleUploadedFile("c", text)}
    answer = client.post("/runs/new/import", {**sent(), "model": "", **typed, **document})
    assert answer.status_code == status, answer.content
    assert not Run.objects.exists()
    return answer


def value(answer: Any, name: str) -> Any:
    return answer.context["form"][name].value()


def notes(answer: Any) -> str:
    return "\n".join(f"{n.verdict}: {n.key} {n.text}" for n in answer.context["imported"].reading.notes)


def test_a_config_fills_the_fields_that_it_names_and_leaves_the_others(client):
    answer = imported(client, AXOLOTL, temperature="0.7")
    assert [value(answer, n) for n in ("model", "num_generations", "learning_rate", "beta")] == [
        "Qwen/Qwen2.5-0.5B", "4", "5e-06", "0.02",
    ]  # fmt: skip
    assert (value(answer, "num_train_epochs"), value(answer, "max_steps")) == ("2", "")
    assert value(answer, "temperature") == "1.0"  # the tool's own, as the report says
    text = answer.content.decode()
    assert "Imported: Axolotl YAML" in text
    assert 'title="From micro_batch_size in the imported document"' in text


def test_the_revision_of_a_model_is_taken_and_a_folder_has_none(client):
    answer = imported(client, AXOLOTL.replace("rl: grpo", "rl: grpo\nrevision_of_model: v1.0"))
    assert value(answer, "revision") == "v1.0"
    refused = client.post("/runs/new/", sent(revision="v1.0"))
    assert "has no revisions" in str(refused.context["form"].errors["revision"])


def test_the_profile_that_has_the_hardware_settings_is_chosen(client):
    answer = imported(client, AXOLOTL)
    name = by_slug("dual-gpu").name
    assert value(answer, "profile") == str(HardwareProfile.objects.get(name=name).pk)
    assert f"The profile <strong>{name}</strong> has these settings" in answer.content.decode()


def test_a_profile_is_not_chosen_among_several_that_fit(client):
    answer = imported(client, "rl: grpo\nbase_model: m\ntrl: {use_vllm: true, vllm_mode: server}\n", profile="")
    assert value(answer, "profile") == ""
    assert "profiles have these settings; choose one" in answer.content.decode()
    chosen = HardwareProfile.objects.get(name=by_slug("dual-gpu").name).pk
    again = imported(client, "rl: grpo\nbase_model: m\ntrl: {use_vllm: true, vllm_mode: server}\n", profile=chosen)
    assert again.context["imported"].profile.pk == chosen


def test_settings_that_no_profile_has_are_offered_as_a_new_one(client):
    answer = imported(client, AXOLOTL.replace("0.8", "0.55"), profile="")
    assert value(answer, "profile") == ""
    text = answer.content.decode()
    assert "No profile has all of these settings" in text
    assert 'form="as-profile"' in text
    new = client.post("/hardware/profiles/import/", {"text": AXOLOTL.replace("0.8", "0.55")})
    form = new.context["form"]
    assert form["server_gpu_memory_utilization"].value() == "0.55"
    assert form["per_device_train_batch_size"].value() == "4"


def test_choices_still_open_are_no_errors(client):
    answer = imported(client, AXOLOTL, dataset_version="", reward_version="")
    assert answer.context["form"].errors == {}
    assert "Still to choose" in answer.content.decode()


def test_a_value_that_can_not_be_used_is_said_beside_its_field_and_stays_as_written(client):
    answer = imported(client, AXOLOTL.replace("5e-6", "fast"))
    assert answer.context["form"].errors["learning_rate"] == ["learning_rate: Expected a number, got fast."]
    assert value(answer, "learning_rate") == "fast"


def test_unknown_and_refused_keys_are_listed_with_their_lines(client):
    answer = imported(client, AXOLOTL + "sample_weighting: 3\noutput_dir: ./out\ndatasets:\n  - path: x\n")
    text = notes(answer)
    assert "Unknown keys: sample_weighting The value was 3." in text
    assert "Known, and not taken: output_dir" in text
    assert "datasets Choose the dataset under Data" in text
    assert "(line 15)" in answer.content.decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "paste a config"),
        ("just words", "The document has no keys"),
        ("a: 1\nb: [", "Line 2"),
        ("a: &x [1]\nb: [*x, *x]", "anchors and aliases are not supported"),
        ("a: !!python/object:os.system x", "the tag tag:yaml.org,2002:python/object:os.system is not supported"),
        ("trl:\n\tbeta: 1", "not tabs"),
        ("{", "This isn’t valid JSON. Line 1"),
        ("foo: 1\nbar: 2", "None of the document's keys are known"),
        ("[" * 5000, "levels deep"),
        ("[1, 2]", "The document has no keys"),
        (b"\xff\xfe\x00", "The document has no keys"),
        (b"rl: \xc3\x28", "Line 1 is not valid UTF-8"),
        (b"PK\x03\x04rubbish", "The .zip can't be read"),
        (f"a: {'x' * 10_000_000}", "The document is larger than 1\N{NO-BREAK SPACE}MiB"),
    ],
    ids=range(14),
)  # fmt: skip
def test_bad_documents_are_refused_beside_their_field_and_nothing_typed_is_lost(client, text, words):
    answer = imported(client, text, 422, temperature="0.9")
    assert words in answer.context["import_problem"]
    assert value(answer, "temperature") == "0.9"
    if isinstance(text, str):
        assert answer.context["import_text"] == text


def test_a_dry_runs_archive_and_a_spec_fill_the_form_as_a_clone_would(client):
    a_version()
    start = sent(learning_rate="3e-6", save_strategy="epoch", save_steps="", use_lora="on", lora_r="8", top_k="5")
    assert client.post("/runs/new/", start).status_code == 302
    run = Run.objects.get()
    spec = json.dumps(run.spec)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("draft/dataset.parquet", os.urandom(2_000_000))  # does not count
        file.writestr("draft/spec.json", json.dumps({"attempt_id": "x-1", "run": run.spec}))
    Run.objects.all().delete()
    for document in (spec, archive.getvalue()):
        data = imported(client, document).context["form"].data
        assert client.post("/runs/new/", data).status_code == 302
        again = Run.objects.get()
        unlike = {name for name in run.spec if run.spec[name] != again.spec[name]}
        assert unlike <= {"run_id", "name"}
        again.delete()


@pytest.mark.parametrize("name", ["trl.yaml", "axolotl.yaml", "accelerate.yaml"])
def test_a_draft_exported_and_imported_again_is_the_same_draft(client, name):
    start = sent(learning_rate="3e-6", num_generations="4", use_lora="on", weight_decay="0.1", eval_rows="4")
    start["eval_reward_version"] = saving.make("wordy", [{"name": "length", "function": "length"}]).pk
    answer = client.post("/runs/new/export", {**start, "format": name})
    assert answer["Content-Disposition"] == f'attachment; filename="draft-{name}"'
    data = imported(client, answer.content.decode()).context["form"].data
    assert client.post("/runs/new/", start).status_code == 302
    assert client.post("/runs/new/", {**data, "name": ""}).status_code == 302
    first, second = (run.spec for run in Run.objects.order_by("created_at"))
    assert {name for name in first if first[name] != second[name]} <= {"run_id", "name"}


def test_an_unfinished_draft_has_no_export_yet(client):
    answer = client.post("/runs/new/export", sent(dataset_version=""))
    assert answer.status_code == 422
    assert "The settings can&#x27;t be exported yet" in answer.content.decode()


def test_a_spec_that_leaves_settings_to_trl_gives_a_form_that_can_be_launched(client):
    a_version()
    assert client.post("/runs/new/", sent()).status_code == 302
    spec = Run.objects.get().spec | {"grpo": {"max_steps": 5}}
    Run.objects.all().delete()
    form = imported(client, json.dumps(spec), temperature="0.3").context["form"]
    assert form.errors == {}
    assert (form["beta"].value(), form["temperature"].value(), form["save_steps"].value()) == ("0.0", "1.0", "500")


def test_a_total_batch_that_the_form_does_not_make_is_a_contradiction(client):
    document = '{"zero_optimization": {"stage": 2}, "train_batch_size": 60}'
    answer = imported(client, document, per_device_train_batch_size="4", gradient_accumulation_steps="2")
    assert "60 is not 4 × 2 × 1 (batch × accumulation × processes) = 8." in notes(answer)


@pytest.mark.parametrize("version", [10**30, -1, "1; drop", [1], None])
def test_rows_that_a_spec_names_and_nobody_has_are_listed(client, version):
    spec = {
        "grpo": {},
        "model": {"path": "m\0"},
        "hardware": {},
        "data": {"name": "x\0", "version": version},
        "rewards": [5],
    }
    text = notes(imported(client, json.dumps(spec)))
    assert "doesn't exist here. Choose another." in text
    assert "rewards No reward config here" in text


def test_everybody_may_take_a_run_away_in_another_tools_format(client):
    assert client.post("/runs/new/", sent(learning_rate="3e-6")).status_code == 302
    run = Run.objects.get()
    answer = viewer().get(f"/runs/{run.pk}/export?format=axolotl.yaml")
    assert answer["Content-Disposition"] == f'attachment; filename="{run.pk}-axolotl.yaml"'
    assert "learning_rate: 3.0e-06" in answer.content.decode()
    page = viewer().get(f"/runs/{run.pk}/spec/").content.decode()
    assert f"/runs/{run.pk}/export?format=trl.yaml" in page
    assert "deepspeed.json" not in page


def test_a_runs_own_share_for_vllm_travels_with_its_spec(client):
    host = a_ready_host("gpus", gpus=1)
    host.inventory |= {"versions": {"torch": "2.11.0", "trl": "1.16.0", "vllm": "0.22.1"}, "cpu_slots": 8}
    host.save()
    profile = HardwareProfile.objects.get(name="Single GPU, colocated vLLM")
    answer = client.post("/runs/new/", sent(profile=str(profile.pk), vllm_share="0.45", max_completion_length="256"))
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.get()
    assert run.spec["hardware"]["colocate_memory_utilization"] == 0.45
    clone = client.get(f"/runs/{run.pk}/clone/")
    assert clone.context["form"]["vllm_share"].value() == 0.45
    assert not clone.context["changed"]
    spec = json.dumps(run.spec)
    run.delete()
    back = imported(client, spec)
    assert (value(back, "vllm_share"), str(value(back, "profile"))) == ("0.45", str(profile.pk))


def test_the_guides_division_of_a_step_finds_the_profile_too(client):
    text = AXOLOTL.replace("0.8", "0.6").replace("micro_batch_size: 4", "micro_batch_size: 2")
    text = text.replace("gradient_accumulation_steps: 8", "gradient_accumulation_steps: 16")
    answer = imported(client, text.replace("num_generations: 4", "num_generations: 2") + "adapter: lora\n")
    shared = HardwareProfile.objects.get(name="Single GPU, server beside the trainer")
    assert shared in answer.context["imported"].fitting


@pytest.mark.parametrize(
    ("announced", "reason"),
    [(False, "No host has reported its TRL’s arguments yet."), (True, "TRL on the hosts has no such argument.")],
)
def test_an_argument_is_left_out_for_what_is_known_of_the_hosts_trl(announced: bool, reason: str) -> None:
    if announced:
        a_ready_host()
    answer = imported(operator(), "learning_rate: 1e-5\nmax_steps: 20\nnum_generations: 4\ntorch_compile: true\n")
    assert reason in html.unescape(answer.content.decode())


SCRIPT_WITH_REWARDS = """\
import re

NUMBER = re.compile(r"[0-9]+")

def near(completions, answer, **kw):
    return [float(bool(NUMBER.search(text))) for text in completions]

def unused():
    pass

load_dataset("org/rows")
trainer = GRPOTrainer(model="m", reward_funcs=[near, think_format_reward, elsewhere], args=GRPOConfig(
    reward_weights=[2.0, 0.5, 1.0], beta=0.1))
"""


def test_the_data_and_rewards_that_a_script_names_lead_on(client):
    answer = imported(client, SCRIPT_WITH_REWARDS)
    leads = answer.context["imported"].leads
    assert (leads.datasets, leads.rewards, leads.unknown) == (
        ["org/rows"],
        ["near", "think_format_reward"],
        ["elsewhere"],
    )
    text = answer.content.decode()
    assert 'href="/datasets/hub/?id=org%2Frows"' in text
    assert 'value="org/rows"' in client.get("/datasets/hub/?id=org%2Frows").content.decode()
    opened = client.post("/rewards/import/", {"text": leads.config})
    rows = opened.context["editor"].rows
    assert [(row.entry.key, float(row["weight"].value())) for row in rows] == [
        ("python", 2.0),
        ("trl_think_format", 0.5),
    ]
    source = rows[0]["p_source"].value() if "p_source" in rows[0].fields else leads.config
    assert "NUMBER = re.compile" in source
    assert "def reward(completions" in source
    assert "unused" not in source


def test_leads_without_rewards_offer_no_config(client):
    leads = (
        imported(client, "model_name_or_path: m\ndataset_name: rows.jsonl\nreward_funcs: [mine.own]\n")
        .context["imported"]
        .leads
    )
    assert (leads.datasets, leads.unknown, leads.config) == ([], ["mine.own"], "")
