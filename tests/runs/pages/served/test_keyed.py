"""A model served with a key: who may, where it listens, what becomes of the key, and what must wait for its end."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from controlplane.catalogue.hardware.models import Host
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.scheduling import dispatching, gpu_queue
from runs.engine.served import starting
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api.claiming import Claim, claim
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import admin, operator
from tests.runs.builders import a_user, event, train
from tests.runs.pages.served.builders import a_checkpoint
from workers.contract.reports.chat import KEY_DIGEST, REQUESTS
from workers.contract.run.jobs import SERVE
from workers.contract.wire.names import SCHEMA

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def checkpoint() -> Checkpoint:
    return a_checkpoint()


@pytest.fixture
def address(checkpoint: Checkpoint) -> str:
    return f"/models/{checkpoint.event.pk}/serve/"


def served(page: str, **changes: Any) -> tuple[Run, str]:
    answer = admin().post(page, {"address": "127.0.0.1", "idle_minutes": 5, **changes})
    found = re.search(r"sk-[\w-]{40,}", answer.content.decode())
    assert found, answer.context["form"].errors
    return Run.objects.filter(kind=SERVE).latest("created_at"), found.group()


def test_the_key_is_shown_once_and_only_its_hash_is_kept(address: str) -> None:
    run, key = served(address)
    assert run.served.key_sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert key not in str(run.spec)
    again = admin().post(address, {"address": "127.0.0.1", "idle_minutes": 5})
    assert again.status_code == 422
    assert key not in again.content.decode()
    assert Run.objects.filter(kind=SERVE).count() == 1
    assert operator().get(address).status_code == 403


def test_the_hash_reaches_the_process_at_the_claim_and_a_port_is_leased(address: str, checkpoint: Checkpoint) -> None:
    run, key = served(address)
    assert gpu_queue.need_of(run).ports == 1
    dispatching.dispatch_ready()
    attempt = run.latest()
    assert attempt.placement is not None
    assert len(attempt.placement["ports"]) == 1
    assert attempt.leases.filter(resource__startswith="port:").count() == 1
    answer = claim(attempt, Claim(SCHEMA, "box", 1, "boot-1"))
    assert (answer.go, answer.secrets) == (True, {KEY_DIGEST: hashlib.sha256(key.encode()).hexdigest()})


def test_a_chat_stays_with_the_model_that_runs_when_another_is_served_with_a_key(
    address: str, checkpoint: Checkpoint
) -> None:
    chat = starting.live_or_start(checkpoint, a_user())
    move(chat.latest(), RunStatus.STARTING, reason="test", actor="test")
    move(chat.latest(), RunStatus.RUNNING, reason="test", actor="test")
    served(address)
    assert starting.live_run(checkpoint) == chat


def test_the_page_says_how_to_call_it(address: str) -> None:
    run, key = served(address)
    dispatching.dispatch_ready()
    attempt = run.latest()
    move(attempt, RunStatus.RUNNING, reason="test", actor="test")
    facts = {"models": ["trained", "base"], "template": True, "engine": "transformers", "at_once": 1, "address": "x"}
    accept(attempt, [event(1, "result", text="", facts=facts), train(2, 0, **{REQUESTS: 7.0})])
    page = admin().get(address).content.decode()
    assert "curl http://127.0.0.1:21000/v1/chat/completions" in page
    assert "one request at a time" in page
    assert "<dd>7</dd>" in page
    assert key not in page


def test_it_listens_where_an_admin_lets_it(address: str) -> None:
    refused = admin().post(address, {"address": "10.0.0.7", "idle_minutes": 5})
    assert refused.status_code == 422
    host = Host.objects.get()
    assert operator().post(f"/hardware/hosts/{host.pk}/serving/", {"serve_address": "10.0.0.7"}).status_code == 403
    assert admin().post(f"/hardware/hosts/{host.pk}/serving/", {"serve_address": "box"}).status_code == 422
    assert admin().post(f"/hardware/hosts/{host.pk}/serving/", {"serve_address": "10.0.0.7"}).status_code == 302
    run, _ = served(address, address="10.0.0.7")
    assert (run.spec["job"]["idle_minutes"], run.spec["job"]["address"]) == (5.0, "10.0.0.7")


def test_a_run_whose_model_is_served_is_not_archived(address: str, checkpoint: Checkpoint) -> None:
    served(address)
    attempt = checkpoint.run.latest()
    move(attempt, RunStatus.FAILED, reason="oom", actor="test")
    answer = operator().post("/runs/archive", {"run": [checkpoint.run.pk]}, follow=True)
    assert "its model is being served" in answer.content.decode()
    assert not Run.objects.exclude(archived_at=None).exists()


def test_who_may_not_serve_leaves_it_running(address: str, checkpoint: Checkpoint) -> None:
    run, _ = served(address)
    chat = f"/models/{checkpoint.event.pk}/chat/"
    operator().post(chat)
    assert Run.objects.filter(kind=SERVE).get() == run  # the chat uses it
    operator().post(f"{chat}stop")
    assert not run.latest().stop_mode
