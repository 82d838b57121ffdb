"""The whole product beside a hub: an admin pushes a saved model, and only this job's process gets the token."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.fake_hub import FakeHub
from tests.fakes.fake_hub_pushes import Account
from tests.stack import Stack
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import HOST, LOOK, until

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

SAVED = """
from django.db import transaction
from controlplane.catalogue.hardware.models import Host
from runs.intake.host_api.ingest import accept
from runs.engine.models import Attempt
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from tests.controlplane.platform.accounts.secret_rows import a_hub_token
from tests.runs import builders

a_hub_token("hf-right")
with transaction.atomic():  # nothing starts before it has ended
    attempt = builders.an_attempt(run=builders.a_run("sums", model=model))
    Attempt.objects.filter(pk=attempt.pk).update(host=Host.objects.get(name="testhost"))
    accept(attempt, [builders.event(1, "checkpoint", step=2, path="checkpoints/checkpoint-2", bytes=9)])
    attempt.refresh_from_db()
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": builders.FREE})
result = [attempt.run_id, attempt.run.events.get(kind="checkpoint").pk]
"""
PUSH = """
from runs.engine.models import Run
result = Run.objects.filter(source_id=run, kind="push").order_by("-created_at")[0].pk
"""
FINAL = ("succeeded", "failed", "stopped")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.accounts["hf-right"] = Account("olga", orgs=("Org",))
        yield hub


def test_an_admin_pushes_a_model_of_a_host_that_is_offline(
    make_stack: Callable[..., Stack], trainer_python: Path, tiny_model: Path, hub: FakeHub
) -> None:
    stack = make_stack(GRPO_TRAINER_PYTHON=str(trainer_python), HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    until(stack, HOST, lambda found: found)
    run, model = stack.django(SAVED, model=str(tiny_model))
    shutil.copytree(tiny_model, stack.runs_dir / run / "1/checkpoints/checkpoint-2")
    with stack.client("admin") as client:
        form = {"repository": "Org/Model", "card": "# Ours"}
        assert client.post(f"/models/{model}/push", data=form).status_code == 302
        job = stack.django(PUSH, run=run)
        ended = until(stack, LOOK, lambda found: found["status"] in FINAL, run=job)
        assert (ended["status"], ended["receipt"]["free"]) == ("succeeded", True), ended
        assert f"{hub.url}/Org/Model" in client.get(f"/models/{model}/").text
        the_next_one_is_stopped(stack, client, hub, run, model)
    there = hub.repositories["Org/Model"]
    assert not there.private
    assert there.files["README.md"] == b"# Ours"
    assert there.files["model.safetensors"] == (tiny_model / "model.safetensors").read_bytes()
    assert set(hub.repositories) == {"Org/Model"}
    assert not any("hf-right" in path.read_text(errors="replace") for path in (stack.runs_dir / job).rglob("*.*"))


def the_next_one_is_stopped(stack: Stack, client: httpx.Client, hub: FakeHub, run: str, model: int) -> None:
    """In mid-upload, and takes back what it has begun."""
    hub.accounts["hf-right"].bytes_per_s = 1_000_000
    hub.uploaded.clear()
    client.post(f"/models/{model}/push", data={"repository": "Org/Other", "card": "# Ours"})
    job = stack.django(PUSH, run=run)
    wait_until(lambda: len(hub.asked("/upload/")) == 2, lambda: str(hub.asked()))
    assert client.post(f"/runs/{job}/stop", data={"mode": "save"}).status_code == 302
    ended = until(stack, LOOK, lambda found: found["status"] in FINAL, run=job)
    assert (ended["status"], ended["receipt"]["free"]) == ("stopped", True), ended
    assert (
        "The repository Org/Other, which this push had created, was deleted again."
        in client.get(f"/models/{model}/").text
    )
