"""The page of a failed run, and the clone with a diagnosis's fix."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile, ModelInspection
from controlplane.platform.accounts.models import Role
from runs.api import shapes
from runs.engine.models import Run
from runs.engine.scheduling import recovery
from runs.engine.states import RunStatus, sentence
from runs.insight import diagnosis
from runs.intake.host_api import ingest
from runs.pages.run_page import header
from tests.controlplane.people import signed_in
from tests.gpu.models import SHAPES
from tests.runs.builders import FREE, a_run, an_attempt, ended, event
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

BACKWARD = {
    "id": "gpu_memory_backward",
    "confidence": "certain",
    "values": {},
    "lines": [["trainer.log", 812, "torch.OutOfMemoryError: CUDA out of memory."]],
    "facts": [],
}
POSSIBLE = {"id": "disk_full", "confidence": "possible", "values": {}, "lines": [], "facts": ["The disk was full."]}
WITHOUT_FIX = {**POSSIBLE, "id": "host_memory"}
"""Nothing in the form would mend it."""


@pytest.fixture
def client() -> Client:
    return signed_in(Role.OPERATOR)


def failed(*diagnoses: dict[str, Any], errors: list[Any] | None = None, **more: Any) -> Run:
    attempt = an_attempt(RunStatus.RUNNING, run=a_run(**more))
    first = attempt.first_seq or 1
    lines = [
        event(first, "diagnosed", diagnoses=list(diagnoses), first_errors=errors or []),
        ended(first + 1, "oom", detail="torch.OutOfMemoryError", exit_codes={"trainer": 1}, receipt=FREE),
    ]
    ingest.accept(attempt, lines)
    return Run.objects.get(pk=attempt.run_id)


def page_of(client: Client, run: Run) -> str:
    return client.get(f"/runs/{run.pk}/").content.decode()


def test_a_failed_run_says_the_causes_with_their_evidence_and_what_to_do(client: Client) -> None:
    a_ready_host()
    page = page_of(client, failed(BACKWARD, POSSIBLE))
    assert page.index("ran out of memory in the backward pass") < page.index("The disk is full")
    assert "Turn on gradient checkpointing" in page
    assert "trainer.log:812" in page
    assert "The disk was full." in page
    assert "Clone with fix" in page
    assert "data-tour-begins" not in page  # it would stand before the card


def test_a_failure_before_the_first_step_is_told_once_with_the_next_act(client: Client) -> None:
    a_ready_host()
    page = page_of(client, failed(WITHOUT_FIX))
    assert page.partition('<script id="run-page"')[0].count(sentence(EndReason.OOM)) == 1
    assert "Clone and try again" in page
    assert "before its first step" not in page
    assert "data-tile=" not in page
    assert page.count("chart-marks") == 1, "of the enlarged chart"
    assert "Clone and try again" not in page_of(client, failed(BACKWARD)), "it has a fix"


def test_a_trainer_that_a_signal_ended_early_says_so(client: Client) -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    ingest.accept(attempt, [ended(attempt.first_seq or 1, "trainer_exited", exit_codes={"trainer": 134, "vllm": 1})])
    page = page_of(client, Run.objects.get(pk=attempt.run_id))
    assert "The trainer exited before its first step." in page
    assert "trainer exit 134 (SIGABRT)" in page
    assert "vllm exit 1<" in page
    Run.objects.update(step=3)
    assert "The trainer exited before its last step." in page_of(client, Run.objects.get(pk=attempt.run_id))


def test_viewers_are_offered_no_clone(client: Client) -> None:
    a_ready_host()
    assert "Clone with fix" not in page_of(signed_in(Role.VIEWER), failed(BACKWARD))
    assert "Clone and try again" not in page_of(signed_in(Role.VIEWER), failed(WITHOUT_FIX))


def test_an_unknown_failure_shows_the_first_errors(client: Client) -> None:
    a_ready_host()
    page = page_of(client, failed(errors=[["trainer.log", 7, "ZorgError: <b>7</b>"]]))
    assert "Nothing more is known about this failure" in page
    assert "Clone and try again" in page
    assert "ZorgError: &lt;b&gt;7&lt;/b&gt;" in page


def test_an_unexplained_failure_shows_the_detail_of_its_end(client: Client) -> None:
    a_ready_host()
    unexplained = {**POSSIBLE, "id": "unexplained", "lines": [["trainer.log", 7, "ZorgError: 7"]]}
    assert "<p>torch.OutOfMemoryError</p>" in page_of(client, failed(unexplained))
    assert "<p>torch.OutOfMemoryError</p>" not in page_of(client, failed(BACKWARD))


def test_the_first_errors_are_shown_beside_the_causes(client: Client) -> None:
    a_ready_host()
    errors = [["trainer.log", 7, "ZorgError: 7"], *BACKWARD["lines"]]
    page = page_of(client, failed(POSSIBLE, BACKWARD, errors=errors))
    assert "The first error of each process:" in page
    assert "ZorgError: 7" in page
    assert page.count("trainer.log:812") == 1, "it is evidence already"
    assert "Nothing more is known" not in page


def test_the_api_gives_the_causes_and_the_first_errors(client: Client) -> None:
    a_ready_host()
    run = failed(BACKWARD, errors=[["trainer.log", 7, "ZorgError: 7"]])
    told = shapes.receipt(run.latest())["diagnosis"]
    assert told["first_errors"] == [{"file": "trainer.log", "number": 7, "text": "ZorgError: 7"}]
    (cause,) = told["causes"]
    assert (cause["id"], cause["confidence"], cause["lines"][0]["number"]) == ("gpu_memory_backward", "certain", 812)
    assert cause["title"] == "The GPU ran out of memory in the backward pass"
    assert shapes.receipt(an_attempt(RunStatus.RUNNING))["diagnosis"] is None


@pytest.mark.parametrize(
    "odd",
    [
        {"diagnoses": ["x", {"id": "of a newer catalogue"}, {"id": 7}, {**BACKWARD, "lines": "x", "values": 3}]},
        {"diagnoses": [{**BACKWARD, "lines": [[1], ["a", "b", "c"]], "confidence": "sure", "facts": 3}]},
    ],
)
def test_what_another_version_sends_breaks_no_page(client: Client, odd: dict[str, Any]) -> None:
    a_ready_host()
    run = failed(*odd["diagnoses"])
    report = diagnosis.of_attempt(run.latest())
    assert report is not None
    assert [one.id for one in report.causes] == ["gpu_memory_backward"]
    assert client.get(f"/runs/{run.pk}/").status_code == 200
    assert client.get(f"/runs/{run.pk}/?tab=events").status_code == 200


def test_a_clone_with_fix_marks_what_it_changed(client: Client) -> None:
    a_ready_host()
    grpo = {"max_steps": 20, "per_device_train_batch_size": 16}
    run = failed(BACKWARD, grpo=grpo)
    answer = client.get(f"/runs/{run.pk}/clone/?fix=gpu_memory_backward")
    form = answer.context["form"]
    assert form["per_device_train_batch_size"].value() == 8
    assert form["gradient_accumulation_steps"].value() == 2
    page = answer.content.decode()
    assert "With the fix for “The GPU ran out of memory in the backward pass”" in page
    assert "was 16" in page
    assert "half the activations at once" in page
    assert "Launch" in page


def test_the_card_shows_what_the_clone_would_change(client: Client) -> None:
    a_ready_host()
    run = failed(BACKWARD, grpo={"max_steps": 20, "per_device_train_batch_size": 16})
    assert f'hx-get="/runs/{run.pk}/fix/?fix=gpu_memory_backward"' in page_of(client, run)
    shown = client.get(f"/runs/{run.pk}/fix/?fix=gpu_memory_backward").content.decode()
    assert re.search(r"Batch per process</dt>.*?16.*?→.*?8", shown, re.DOTALL)
    assert client.get(f"/runs/{run.pk}/fix/?fix=disk_full").status_code == 204


@pytest.mark.parametrize(("profiles", "shown"), [(True, False), (False, True)])
def test_the_card_shows_no_change_that_makes_no_difference(client: Client, profiles: bool, shown: bool) -> None:
    checkpointing = {"name": "gradient_checkpointing", "type": "bool", "default": True, "group": "Other"}
    a_ready_host(trainer_schema={**SCHEMA, "fields": [*SCHEMA["fields"], checkpointing]})
    run = failed(BACKWARD)
    HardwareProfile.objects.filter(pk=run.profile_id).update(
        spec={**run.profile.spec, "gradient_checkpointing": profiles}
    )
    card = client.get(f"/runs/{run.pk}/fix/?fix=gpu_memory_backward").content.decode()
    assert bool(re.search(r"gradient_checkpointing</dt>.*?off.*?→.*?on", card, re.DOTALL)) == shown
    assert ("gradient_checkpointing" in card) == shown


def test_a_failed_reward_leads_to_its_editor_and_a_resume_that_would_fail_again_stands_back(client: Client) -> None:
    a_ready_host()
    run = failed({**BACKWARD, "id": "reward_failed", "values": {"reward": "format", "message": "x"}})
    page = page_of(client, run)
    assert re.search(
        rf'class="button small primary" href="/rewards/{run.reward_version.config_id}/\?replay={run.pk}"', page
    )
    assert {EndReason.REWARD_FAILED, EndReason.OOM} <= header._REPEATING_REASONS
    assert not header._REPEATING_REASONS & recovery.REASONS


def test_what_can_not_be_halved_any_more_stays(client: Client) -> None:
    a_ready_host()
    grpo = {"max_steps": 20, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    form = client.get(f"/runs/{failed(BACKWARD, grpo=grpo).pk}/clone/?fix=gpu_memory_backward").context["form"]
    assert form["per_device_train_batch_size"].value() == 1
    assert form["gradient_accumulation_steps"].value() == 8


@pytest.mark.parametrize("fix", ["", "disk_full", "nothing", "<b>"])
def test_a_fix_that_was_not_diagnosed_changes_nothing(client: Client, fix: str) -> None:
    a_ready_host()
    run = failed(BACKWARD)
    answer = client.get(f"/runs/{run.pk}/clone/", {"fix": fix})
    assert answer.status_code == 200
    assert answer.context["fixed"] is None


def test_a_value_of_the_log_limits_the_setting(client: Client) -> None:
    a_ready_host()
    rank = {**BACKWARD, "id": "lora_rank", "values": {"rank": "64", "limit": "16"}}
    run = failed(rank)
    run.spec["lora"] = {"r": 64, "alpha": 64, "dropout": 0.0, "target_modules": ["q_proj"]}
    run.save()
    form = client.get(f"/runs/{run.pk}/clone/?fix=lora_rank").context["form"]
    assert form["lora_r"].value() == 16
    assert [fold["title"] for fold in form.folds if fold["open"]] == ["LoRA"]


def test_memory_is_fixed_until_the_estimate_fits(client: Client) -> None:
    """Halving the batch is not enough for all weights of a 3B model on 40 GiB: the cheapest remedy that is joins it."""
    host = a_ready_host("one GPU", gpus=1)
    host.inventory["gpus"] = [{**gpu, "memory_mib": 40_960} for gpu in host.inventory["gpus"]]
    host.inventory |= {"memory_mib": 131_072, "versions": {"trl": "1.16.0", "vllm": "0.31.0", "torch": "2.13.0"}}
    host.save()
    config = {"model_type": "qwen2", "config": asdict(SHAPES["3b"]), "chat_template": True, "context_length": 8192}
    answer = {"ok": True, "parameters": 3_085_938_688, "heads": 16, "kv_heads": 2, **config}
    ModelInspection.objects.create(host=host, model="/models/tiny", answer=answer, answered_at=timezone.now())
    run = failed(BACKWARD, hardware={"rollout": "transformers", "trainer_gpus": 1})
    answered = client.get(f"/runs/{run.pk}/clone/?fix=gpu_memory_backward")
    stops = [finding.cause for finding in answered.context["findings"] if finding.grade == "stop"]
    assert not any("GiB" in cause for cause in stops), stops
    assert "according to the memory estimate, the run would not fit otherwise" in answered.content.decode()
