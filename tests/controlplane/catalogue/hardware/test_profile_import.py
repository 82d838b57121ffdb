"""Configs of other tools that describe hardware, opened in a new profile's form."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.catalogue.exchange.writing import accelerate_yaml, deepspeed_json, trl_yaml
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, by_slug
from tests.controlplane.people import operator
from workers.contract.run.hardware import ZERO
from workers.contract.run.spec import DataSpec, ModelSpec, RewardSpec, RunSpec

pytestmark = pytest.mark.django_db

DEEPSPEED = """{
  // tuned for two small cards
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 50000000},
  "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": 16,
  "fp16": {"enabled": true}, "activation_checkpointing": {"cpu_checkpointing": true}, "tensorboard": {}
}"""


def imported(document: str | bytes, status: int = 422) -> Any:
    """The answer: 422 as long as the profile has no name."""
    upload = {"text": document} if isinstance(document, str) else {"file": SimpleUploadedFile("c", document)}
    answer = operator().post("/hardware/profiles/import/", upload)
    assert answer.status_code == status, answer.content
    return answer


def test_a_tuned_deepspeed_json_becomes_a_profile_that_keeps_it():
    answer = imported(DEEPSPEED.encode())
    form = answer.context["form"]
    assert set(form.errors) == {"name"}
    spec = form.result.spec
    assert (spec.strategy, spec.offload, spec.precision, spec.processes) == ("zero2", "optimizer", "fp16", 2)
    assert spec.deepspeed["activation_checkpointing"] == {"cpu_checkpointing": True}
    assert form.result.batch == {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    text = answer.content.decode()
    assert "Imported: DeepSpeed JSON" in text
    assert "Metrics go to the run’s page" in text or "Metrics go to the run&#x27;s page" in text
    data = {**form.data, "name": "small cards"}
    assert operator().post("/hardware/profiles/new/", data).status_code == 302


def test_an_exported_run_gives_its_profile_back(subtests):
    for slug in [profile.slug for profile in SHIPPED_PROFILES]:
        with subtests.test(slug=slug):
            shipped = by_slug(slug)
            run = RunSpec(
                "r-1", "r", "train", ModelSpec("m"), DataSpec("d", 1, "0" * 64, 9), (RewardSpec("a", "think_tags"),),
                shipped.spec, {**shipped.batch}, lora=shipped.lora,
            )  # fmt: skip
            for write in (trl_yaml, accelerate_yaml):
                form = imported(write(run)).context["form"]
                assert set(form.errors) == {"name"}  # there is one of this name
                assert form.result.columns()["spec"] == {**shipped.columns()["spec"], "profile": ""}
                assert (form.result.lora, form.result.batch) == (shipped.lora, shipped.batch)


@pytest.mark.parametrize("slug", [profile.slug for profile in SHIPPED_PROFILES if profile.spec.strategy in ZERO])
def test_an_exported_deepspeed_json_is_the_strategy_again(slug):
    shipped = by_slug(slug)
    spec = imported(deepspeed_json(shipped.spec)).context["form"].result.spec
    assert (spec.strategy, spec.offload, spec.deepspeed) == (shipped.spec.strategy, shipped.spec.offload, None)


def test_a_command_line_says_how_many_processes_train_and_lists_what_is_a_runs():
    answer = imported("accelerate launch --num_processes 4 train.py --learning_rate 1e-5 --lora_r 8 --bogus 1")
    form = answer.context["form"]
    assert [form[name].value() for name in ("trainer_gpus", "processes", "strategy", "lora_r")] == [
        "4",
        "4",
        "ddp",
        "8",
    ]
    text = answer.content.decode()
    assert "bogus" in text
    assert "import the document under New run" in text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"a": 1}', "None of the document's keys are known"),
        ("{", "This isn’t valid JSON. Line 1"),
        ("a: [", "Line 1"),
        ("a: b\n", "This is not a hardware profile"),
        ("x" * 2_000_000, "It is larger than"),
        (b"PK\x03\x04", "The .zip can't be read"),
    ],
    ids=range(6),
)
def test_what_describes_no_hardware_is_refused_and_stays_in_the_field(document, words):
    answer = imported(document)
    assert words in answer.context["problem"]
    if isinstance(document, str):
        assert answer.context["text"] == document


def test_a_wrong_value_is_said_beside_its_field():
    form = imported("distributed_type: MULTI_GPU\nnum_processes: two\n").context["form"]
    assert "num_processes: Expected a number, got two." in form.errors["processes"]
    assert form["processes"].value() == "two"
