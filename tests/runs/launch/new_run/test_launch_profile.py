"""The New run page and hardware profiles: what choosing one fills in, and what is left to it."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile, ModelInspection
from runs.engine.models import Run
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import a_ready_host, cpu_profile, sent

pytestmark = pytest.mark.django_db

LORA = {"r": 8, "alpha": 24, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}


@pytest.fixture
def client(settings) -> Client:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    a_ready_host()
    return operator()


def a_profile(name: str = "small card", **columns: Any) -> HardwareProfile:
    values = {"spec": {"rollout": "transformers", "cpu_slots": 1}, "lora": LORA, "batch": {"num_generations": 4}}
    return HardwareProfile.objects.create(name=name, **{**values, **columns})


def fillable(client: Client) -> dict[str, Any]:
    page = client.get("/runs/new/").content.decode()
    found = re.search(r'<script id="fillable" type="application/json">(.*?)</script>', page)
    assert found
    return json.loads(found.group(1))


def test_the_page_knows_what_each_profile_fills_in(client):
    profile = a_profile()
    values = fillable(client)["profiles"][str(profile.pk)]
    assert values == {
        "num_generations": "4",
        "use_lora": "on",
        "lora_r": "8",
        "lora_alpha": "24",
        "lora_dropout": "0.1",
        "lora_targets": "q_proj, v_proj",
    }


def test_the_page_knows_what_the_fields_hold_without_a_profile(client):
    a_profile()
    base = fillable(client)["base"]
    assert (base["num_generations"], base["use_lora"], base["lora_r"]) == ("8", "", "16")
    # A nought is a value: a field that holds it is filled in as any other.
    assert base["lora_dropout"] == "0.0"


def test_a_profile_that_the_contract_has_outgrown_fills_in_nothing(client):
    broken = a_profile(spec={"rollout": "by post"})
    assert fillable(client)["profiles"][str(broken.pk)] == {}
    answer = client.post("/runs/new/", sent(profile=broken.pk))
    assert answer.status_code == 422


def test_a_link_that_names_a_profile_starts_with_its_values(client):
    form = client.get(f"/runs/new/?profile={a_profile().pk}").context["form"]
    assert [form[name].value() for name in ("num_generations", "use_lora", "lora_r")] == ["4", "on", "8"]


def test_a_post_is_taken_as_it_is_sent(client):
    """Without JavaScript a profile fills in nothing: what is launched is what the page showed."""
    answer = client.post("/runs/new/", sent(profile=a_profile().pk, num_generations="8"))
    spec = Run.objects.get(pk=answer.url.strip("/").split("/")[-1]).spec
    assert spec["lora"] is None
    assert spec["grpo"]["num_generations"] == 8


def test_the_live_check_says_what_departs_from_the_profile(client):
    panel = client.post("/runs/new/check", sent(profile=a_profile().pk)).content.decode()
    assert "The profile was made for a LoRA of rank 8" in panel
    assert "Use the profile&#x27;s LoRA" in panel
    assert "Use all the profile&#x27;s values" in panel


def test_an_error_keeps_what_was_typed_against_the_profile(client):
    profile = a_profile()
    answer = client.post("/runs/new/", sent(profile=profile.pk, num_generations="6", lora_r="3", use_lora="on"))
    assert answer.status_code == 422
    form = answer.context["form"]
    assert [form[name].value() for name in ("num_generations", "lora_r", "use_lora")] == ["6", "3", True]


def test_a_clone_keeps_the_values_of_its_run(client):
    profile = a_profile()
    answer = client.post("/runs/new/", sent(profile=profile.pk, num_generations="8"))
    form = client.get(f"{answer.url}clone/").context["form"]
    assert form["num_generations"].value() == 8
    assert not form["use_lora"].value()


def test_precision_is_the_profiles_unless_it_is_chosen(client):
    form = client.get("/runs/new/").context["form"]
    assert form["precision"].value() == "profile"
    answer = client.post("/runs/new/", sent(profile=cpu_profile().pk))
    assert not {"bf16", "fp16"} & Run.objects.get(pk=answer.url.strip("/").split("/")[-1]).spec["grpo"].keys()


QWEN_3B = {
    "ok": True, "model_type": "qwen2", "parameters": 3_085_938_688, "chat_template": True, "context_length": 32_768,
    "config": {"hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
               "intermediate_size": 11_008, "vocab_size": 151_936, "tie_word_embeddings": True},
}  # fmt: skip


def test_the_memory_of_each_gpu_is_shown_and_a_fix_takes_another_profile(client):
    host = a_ready_host("cards", gpus=2)
    cards = [{**gpu, "memory_mib": 24_564} for gpu in host.inventory["gpus"]]
    host.inventory |= {"gpus": cards, "versions": {"vllm": "0.31.0", "trl": "1.16.0"}, "memory_mib": 131_072}
    host.save()
    ModelInspection.objects.create(host=host, model="/models/3b", answer=QWEN_3B, answered_at=timezone.now())
    profile = HardwareProfile.objects.get(name="Dual GPU, 1 server + 1 trainer")
    answer = client.post("/runs/new/check", sent(model="/models/3b", host=host.pk, profile=profile.pk, use_lora=None))
    page = answer.content.decode()
    needed = re.search(r"needs about (\d+\.\d) GiB", page)
    assert needed, "preflight says so"
    assert f"{needed[1]} of 24.0" in page, "and the bar has the same figure"
    assert "Largest part: optimizer states" in page
    assert "3.1B of 3.1B parameters (100%)" in page
    fixes = [json.loads(unescape(text)) for text in re.findall(r'data-fix="([^"]*)"', page)]
    swap = str(HardwareProfile.objects.get(name="Dual GPU, LoRA hot-swap").pk)
    assert any(fix.get("profile") == swap and fix["use_lora"] == "on" for fix in fixes)


def test_a_run_on_the_cpu_has_no_bar(client):
    page = client.post("/runs/new/check", sent(profile=cpu_profile().pk)).content.decode()
    assert "Estimated memory" not in page


def test_the_chooser_ranks_the_catalogue(client):
    page = client.post("/runs/new/profiles", sent(profile=cpu_profile().pk)).content.decode()
    assert "the fastest that fits comes first" in page
    assert page.index("<strong>CPU</strong>") < page.index("Doesn't fit:")
    values = [json.loads(unescape(text)) for text in re.findall(r'data-fix="([^"]*)"', page)]
    assert {"profile", "use_lora"} <= set(values[0])
