"""Secrets on their way to a run: named by its rewards, checked before the launch, given at the claim and never else."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.core import serializers
from pytest_django.fixtures import Settings

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import Secret
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.spec import LaunchRequest
from runs.engine.states import RunStatus
from runs.intake.host_api.claiming import Claim, claim
from runs.launch.new_run import drafting
from runs.launch.preflight import checks
from tests.controlplane.people import admin
from tests.controlplane.platform.accounts.secret_rows import (
    HUB_KEY,
    KEY,
    a_hub_token,
    an_endpoint,
    asks_reward,
)
from tests.runs.builders import a_host, a_run, an_attempt
from tests.runs.conftest import Sent
from workers.contract.run.sinks import LINK, SinkSpec
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import Task

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

HERE = Claim(schema=1, host="box", pid=100, boot_id="boot-1")


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """An attempt whose rewards name JUDGE."""
    return an_attempt_of(asks_reward(monkeypatch))


def an_attempt_of(components: list[dict[str, Any]], **more: Any) -> Attempt:
    version = saving.make("asks", components)
    attempt = an_attempt(RunStatus.STARTING, run=a_run("judged", reward_version=version, **more))
    host = a_host()
    Attempt.objects.filter(pk=attempt.pk).update(host=host, placement={"host": "box"})
    attempt.refresh_from_db()
    return attempt


# --- the claim --------------------------------------------------------------------------------------------------


def test_the_claim_gives_what_the_rewards_name_and_nothing_else(starting: Attempt) -> None:
    an_endpoint()
    an_endpoint("ANOTHER", "sk-another")
    a_hub_token()  # the model is a folder
    answer = claim(starting, HERE)
    assert answer.go
    assert list(answer.secrets) == ["GRPO_SECRET_JUDGE"]
    assert json.loads(answer.secrets["GRPO_SECRET_JUDGE"]) == {"address": "https://judge.example/v1", "key": KEY}
    assert KEY not in repr(answer)
    assert Secret.objects.get(name="JUDGE").used_by == starting.run_id
    assert Secret.objects.get(name="ANOTHER").used_at is None


def test_a_run_without_such_rewards_gets_none() -> None:
    an_endpoint()
    answer = claim(an_attempt_of([{"name": "format", "function": "think_tags"}]), HERE)
    assert (answer.go, answer.secrets) == (True, {})


def test_a_run_with_sinks_is_told_where_people_see_it(settings: Settings) -> None:
    components = [{"name": "format", "function": "think_tags"}]
    settings.PUBLIC_URL = "https://grpo.example.org"
    attempt = an_attempt_of(components, sinks=(SinkSpec("tensorboard"),))
    assert claim(attempt, HERE).secrets == {LINK: f"https://grpo.example.org/runs/{attempt.run_id}/"}


def test_the_hubs_token_comes_with_a_model_of_the_hub() -> None:
    a_hub_token()
    attempt = an_attempt_of([{"name": "format", "function": "think_tags"}], model="some/model")
    assert claim(attempt, HERE).secrets == {"HF_TOKEN": HUB_KEY}


def test_without_a_token_here_the_hosts_own_is_used() -> None:
    attempt = an_attempt_of([{"name": "format", "function": "think_tags"}], model="some/model")
    assert (claim(attempt, HERE).go, claim(attempt, HERE).secrets) == (True, {})


def test_who_asks_again_because_no_answer_came_gets_them_again(starting: Attempt) -> None:
    an_endpoint()
    assert claim(starting, HERE).secrets == claim(starting, HERE).secrets != {}


@pytest.mark.parametrize(
    "other",
    [
        Claim(schema=1, host="box", pid=101, boot_id="boot-1"),
        Claim(schema=1, host="box", pid=100, boot_id="boot-2"),
        Claim(schema=1, host="elsewhere", pid=100, boot_id="boot-1"),
    ],
)
def test_nobody_else_gets_them(starting: Attempt, other: Claim) -> None:
    an_endpoint()
    if other.host == "box":
        assert claim(starting, HERE).go
    answer = claim(starting, other)
    assert (answer.go, answer.secrets) == (False, {})


@pytest.mark.parametrize("status", ["running", "stopping", "succeeded", "failed", "stopped", "queued"])
def test_only_a_start_gets_them(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    an_endpoint()
    version = saving.make("asks", asks_reward(monkeypatch))
    attempt = an_attempt(RunStatus(status), run=a_run("judged", reward_version=version))
    same = {"claimed_at": attempt.created_at, "supervisor_pid": 100, "boot_id": "boot-1", "host": a_host()}
    same["placement"] = {"host": "box"}
    Attempt.objects.filter(pk=attempt.pk).update(**same)
    assert claim(Attempt.objects.get(pk=attempt.pk), HERE).secrets == {}


def test_a_key_entered_anew_is_what_the_next_claim_gives(starting: Attempt) -> None:
    secret = an_endpoint()
    page = {"name": "JUDGE", "kind": "endpoint", "address": secret.address, "key": "sk-new"}
    admin().post(f"/settings/secrets/{secret.pk}/", page)
    assert json.loads(claim(starting, HERE).secrets["GRPO_SECRET_JUDGE"])["key"] == "sk-new"


@pytest.mark.parametrize("what", ["deleted", "renamed", "never made"])
def test_a_secret_that_is_gone_is_a_refusal_that_says_so(starting: Attempt, what: str) -> None:
    if what != "never made":
        an_endpoint()
        rows = Secret.objects.filter(name="JUDGE")
        rows.delete() if what == "deleted" else rows.update(name="JUDGE_2")
    answer = claim(starting, HERE)
    assert (answer.go, answer.secrets) == (False, {})
    assert "There is no endpoint JUDGE among the secrets" in answer.why
    starting.refresh_from_db()
    assert (starting.status, starting.reason) == ("failed", "launch_failed")
    event = RunEvent.objects.filter(kind="status").latest("pk")
    assert "Settings, Secrets" in event.data["detail"]
    assert claim(starting, HERE).go is False


def test_a_key_of_another_installation_is_a_refusal_that_says_what_to_do(starting: Attempt, settings: Settings) -> None:
    an_endpoint()
    settings.SECRET_KEY = "another" * 8
    answer = claim(starting, HERE)
    assert not answer.go
    assert "JUDGE can't be opened" in answer.why
    assert "enter its key again" in answer.why


# --- before the launch ------------------------------------------------------------------------------------------


def findings(version: RewardVersion) -> list[str]:
    draft = drafting.draft_of(LaunchRequest(reward_version=version), hosts=[])
    return [found.cause for found in checks.rewards.check_secrets(draft)]


def test_preflight_says_what_the_claim_would_refuse(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    version = saving.make("asks", asks_reward(monkeypatch))
    (missing,) = findings(version)
    assert "There is no endpoint JUDGE" in missing
    an_endpoint()
    assert findings(version) == []
    settings.SECRET_KEY = "another" * 8
    (closed,) = findings(version)
    assert "JUDGE can't be opened" in closed


def test_a_reward_that_names_none_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(saving.make("asks", asks_reward(monkeypatch, ""))) == []


# --- and nowhere else -------------------------------------------------------------------------------------------


def test_no_message_row_page_or_log_has_a_key(
    starting: Attempt, sent: Sent, caplog: pytest.LogCaptureFixture, client: Any
) -> None:
    from runs.engine.scheduling import dispatching

    an_endpoint()
    a_hub_token()
    Attempt.objects.filter(pk=starting.pk).update(claimed_at=None)
    with caplog.at_level(logging.DEBUG):
        dispatching.send_launch(starting)
        spec = to_dict(dispatching.attempt_spec(starting))
        assert claim(starting, HERE).secrets
        run = starting.run_id
        pages = [
            f"/runs/{run}/",
            f"/runs/{run}/spec/",
            f"/runs/{run}/events/",
            f"/runs/{run}/head/",
            "/settings/secrets/",
        ]
        shown = [admin().get(page) for page in pages]
    assert [page.status_code for page in shown] == [200] * len(pages)
    assert len(sent.of(Task.LAUNCH_RUN)) == 1
    rows = [*RunEvent.objects.all(), *Attempt.objects.all(), starting.run, *Secret.objects.all()]
    everything = [
        *(page.content.decode() for page in shown), caplog.text, json.dumps(spec), str(sent.messages),
        serializers.serialize("json", rows),
    ]  # fmt: skip
    for text in everything:
        assert KEY not in text
        assert HUB_KEY not in text
