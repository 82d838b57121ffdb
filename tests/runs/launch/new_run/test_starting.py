"""A new run that starts with the weights of another run's checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator
from tests.runs.builders import a_run, an_attempt, event
from tests.runs.launch.new_run.launching_page import a_ready_host, sent
from workers.contract.run.spec import LoraSpec

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def a_checkpoint(**run: Any) -> RunEvent:
    """Of step 2; that of step 1 is removed."""
    attempt = an_attempt(run=a_run(host=Host.objects.get(name="box"), model="/models/tiny", **run))
    Attempt.objects.filter(pk=attempt.pk).update(host=attempt.run.host)
    saves = [event(n, "checkpoint", step=n, path=f"checkpoints/checkpoint-{n}", kept=[n]) for n in (1, 2)]
    accept(attempt, saves)
    return RunEvent.objects.get(kind="checkpoint", seq=2)


def folder(checkpoint: RunEvent, step: int = 2) -> str:
    return f"{checkpoint.run_id}/1/checkpoints/checkpoint-{step}"


def test_a_clone_from_a_checkpoint_starts_with_it_on_its_host(client: Client) -> None:
    checkpoint = a_checkpoint()
    page = client.get(f"/runs/{checkpoint.run_id}/clone/?checkpoint={checkpoint.pk}")
    assert page.context["form"]["start_from"].value() == folder(checkpoint)
    answer = client.post("/runs/new/", sent(start_from=folder(checkpoint)))
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.latest("created_at")
    assert run.spec["start_from"] == folder(checkpoint)
    assert str(run.host) == "box"
    again = client.get(f"/runs/{run.pk}/clone/")
    assert again.context["form"]["start_from"].value() == folder(checkpoint)


def test_a_checkpoint_may_be_named_by_its_absolute_path(client: Client) -> None:
    checkpoint = a_checkpoint()
    client.post("/runs/new/", sent(start_from=f"/srv/runs/{folder(checkpoint)}/"))
    assert Run.objects.latest("created_at").spec["start_from"] == folder(checkpoint)


@pytest.mark.parametrize(
    ("run", "step", "changes", "words"),
    [
        ({}, 9, {}, "No checkpoint has this folder"),
        ({}, 1, {}, "removed the checkpoint of step 1"),
        ({}, 2, {"model": "/models/other"}, "This is a checkpoint of /models/tiny"),
        ({"lora": LoraSpec()}, 2, {}, "trained a LoRA"),
        ({}, 2, {"use_lora": "on"}, "trained all weights"),
        ({"lora": LoraSpec(r=4)}, 2, {"use_lora": "on", "lora_r": "8"}, "LoRA has rank 4 on q_proj"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_beside_its_field(
    client: Client, run: dict[str, Any], step: int, changes: dict[str, str], words: str
) -> None:
    checkpoint = a_checkpoint(**run)
    answer = client.post("/runs/new/", sent(start_from=folder(checkpoint, step), **changes))
    assert words in str(answer.context["form"].errors["start_from"])
    assert Run.objects.count() == 1


@pytest.mark.parametrize(("shared", "status"), [("f1", 302), ("f2", 422)])
def test_another_host_must_share_the_folder(client: Client, shared: str, status: int) -> None:
    checkpoint, other = a_checkpoint(), a_ready_host("other")
    for name, runs_folder in (("box", "f1"), ("other", shared)):
        host = Host.objects.get(name=name)
        host.inventory["runs_folder"] = runs_folder
        host.save(update_fields=["inventory"])
    answer = client.post("/runs/new/", sent(start_from=folder(checkpoint), host=str(other.pk)))
    assert answer.status_code == status
    if status == 422:
        assert "The checkpoint is on box" in str(answer.context["form"].errors["host"])
