"""Hosts that were revoked, have another version or another clock; and what operators do about it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import codes, credentials
from controlplane.catalogue.joining.credentials import HostNameTaken
from controlplane.catalogue.joining.models import HostCredential, JoinCode
from controlplane.platform.http.tokens import attempt_token
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.scheduling.leasing import host_problem
from runs.engine.states import RunStatus
from runs.urls import urlpatterns
from tests.controlplane.people import operator
from tests.host_tokens import host_token
from tests.runs.builders import a_host, an_attempt
from tests.runs.intake.host_api.test_api import post as to_attempt
from tests.runs.pages.hosts.page import page
from tests.runs.pages.hosts.test_host_announcements import announce, post
from workers.contract.wire.joining import VERSION

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture(autouse=True)
def no_redis(settings: Settings) -> None:
    settings.REDIS_URL, settings.HOST_REDIS_URL = "redis://127.0.0.1:1/0", "rediss://redis.example/0"


def what(answer: Any) -> str:
    return str(answer.json()["error"]["what"])


def test_an_announcement_tells_version_and_clock() -> None:
    announce(version=VERSION, time=time.time() + 3660)
    row = HostCredential.objects.get()
    assert (row.version, round((row.clock_skew_s or 0) / 3660), row.last_used_at is not None) == (VERSION, 1, True)
    assert "clock 1 h" in page()
    announce(version=VERSION, time=time.time())
    assert "clock" not in page()


@pytest.mark.parametrize("clock", ["soon", None, True, 1e300, -5])
def test_a_clock_that_is_none_harms_nothing(clock: Any) -> None:
    assert announce(time=clock).status_code == 200


def test_a_version_too_far_away_is_refused_in_words_and_gets_no_launches() -> None:
    announce(version=VERSION)
    answer = announce(version="7.0.0")
    assert (answer.status_code, "Update the control plane." in what(answer)) == (426, True)
    assert host_problem(Host.objects.get(), timezone.now())
    assert "version refused" in page()
    assert announce(version=VERSION).status_code == 200
    assert "version refused" not in page()


def test_a_revoked_host_is_told_so_and_its_token_fits_nothing() -> None:
    announce()
    assert operator().post(f"/hardware/hosts/{Host.objects.get().pk}/revoke/").status_code == 302
    assert what(announce()) == "The credentials of box were revoked."
    assert announce().status_code == 403
    assert what(post("/api/hosts/announce", {"name": "box"}, token="made up")) == "The token doesn't belong to box."
    assert host_problem(Host.objects.get(), timezone.now())
    assert "revoked" in page()


def test_revoking_ends_what_runs_there_and_its_tokens() -> None:
    host, attempt = a_host(), an_attempt(RunStatus.RUNNING)
    Attempt.objects.filter(pk=attempt.pk).update(host=host, claimed_at=timezone.now(), dispatched_at=timezone.now())
    host_token("box")
    assert attempt.run.name in operator().get(f"/hardware/hosts/{host.pk}/revoke/").content.decode()
    answer = operator().post(f"/hardware/hosts/{host.pk}/revoke/", follow=True).content.decode()
    assert "1 run on it ended." in answer
    assert "Redis is unreachable" in answer.replace("&#x27;", "’")
    attempt.refresh_from_db()
    assert (attempt.status, attempt.reason) == (RunStatus.FAILED, "host_lost")
    refused = to_attempt(attempt, "sync", {"lines": []})
    assert (refused.status_code, refused.json()["error"]["where"]) == (403, "revoked credentials")


def test_a_host_that_joins_again_gets_new_tokens_and_the_old_ones_stay_ended() -> None:
    host, old, new = a_host(), an_attempt(RunStatus.RUNNING), timezone.now() + timedelta(minutes=1)
    Attempt.objects.filter(pk=old.pk).update(host=host, dispatched_at=timezone.now())
    host_token("box")
    credentials.revoke("box", None)
    assert credentials.is_valid("box", credentials.issue("box").token)
    assert to_attempt(old, "sync", {"lines": []}).status_code == 403
    Attempt.objects.filter(pk=old.pk).update(dispatched_at=new)  # as one that was sent there since
    assert to_attempt(old, "sync", {"lines": []}).status_code == 200


def test_the_token_of_an_attempt_ends_after_all_was_handed_over() -> None:
    attempt = an_attempt(RunStatus.SUCCEEDED)
    long_ago = timezone.now() - timedelta(days=3)
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=long_ago)
    assert to_attempt(attempt, "sync", {"lines": []}).status_code == 200  # its last line is still missing
    RunEvent.objects.create(run=attempt.run, attempt=attempt, at=long_ago, kind="ended")
    assert what(to_attempt(attempt, "sync", {"lines": []})).startswith("The attempt's token has expired")
    assert to_attempt(attempt, "deleted", {"path": "checkpoints/checkpoint-1"}).status_code == 409  # nobody asked
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=timezone.now())
    assert to_attempt(attempt, "sync", {"lines": []}).status_code == 200


BODIES = {
    "api_deleted": {"path": "checkpoints/checkpoint-1"},
    "api_stored": {"path": "checkpoints/checkpoint-1", "state": "stored"},
    "api_store_signature": {"method": "GET", "path": "/bucket/key"},
}
"""What passes as a body, of routes that look at it before the token's age."""


def test_no_route_of_a_host_takes_the_token_of_an_attempt_that_ended_long_ago(subtests: pytest.Subtests) -> None:
    attempt, long_ago = an_attempt(RunStatus.SUCCEEDED), timezone.now() - timedelta(days=3)
    RunEvent.objects.create(run=attempt.run, attempt=attempt, at=long_ago, kind="ended")
    Attempt.objects.update(ended_at=long_ago, claimed_at=long_ago)
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    routes = [entry for entry in urlpatterns if "<slug:attempt_id>" in str(entry.pattern)]
    assert len(routes) > 10
    for route in routes:
        with subtests.test(route=route.name):
            more = {name: "trainer" for name in route.pattern.converters if name != "attempt_id"}
            url = reverse(route.name, kwargs={"attempt_id": attempt.pk, **more})
            body = BODIES.get(route.name, {})
            answers = [
                Client().get(url, headers=headers),
                Client().post(url, body, "application/json", headers=headers),
            ]
            expected = 409 if route.name == "api_deleted" else 403  # nobody asked for a deletion
            assert {answer.status_code for answer in answers} == {405, expected}


def test_the_command_is_shown_once_and_its_code_is_good(valkey: str, settings: Settings) -> None:
    settings.REDIS_URL = valkey
    answer = operator().post("/hardware/hosts/add/", {"name": "gpu1"})
    command = answer.context["command"]
    assert command in answer.content.decode()
    assert "refers to the local machine" not in answer.content.decode()
    row = codes.find(command.split()[-1])
    assert row is not None
    assert (row.host_name, command.split()[:4]) == ("gpu1", ["python3", "-m", "workers.host.join", "http://testserver"])
    assert "--plaintext" in answer.content.decode()
    assert command.split()[-1] not in operator().get(f"/hardware/hosts/add/{row.pk}/").content.decode()


def test_the_page_waits_for_the_machine_and_sees_it() -> None:
    row, _ = codes.create("", by=None)
    state = lambda: operator().get(f"/hardware/hosts/add/{row.pk}/")  # noqa: E731
    assert "Waiting for the machine" in state().content.decode()
    codes.use_up(row, "gpu1")
    Host.objects.create(name="gpu1")
    assert "its worker is starting" in state().content.decode()
    Host.objects.update(announced_at=timezone.now())
    assert (state().status_code, "gpu1 is reachable" in state().content.decode()) == (286, True)
    JoinCode.objects.update(used_at=None, used_by="", expires_at=timezone.now())
    assert "The code wasn’t used in time" in state().content.decode()


def test_a_name_that_cannot_be_is_refused_with_the_form(settings: Settings) -> None:
    host_token("box")
    for name in ("box", "a b", "x" * 65):
        assert operator().post("/hardware/hosts/add/", {"name": name}).status_code == 422
    settings.REDIS_URL, settings.HOST_REDIS_URL = "unix:///nowhere", ""
    answer = operator().post("/hardware/hosts/add/", {"name": "gpu1"})
    assert (answer.status_code, "The embedded Redis only listens on this machine" in answer.content.decode()) == (
        422,
        True,
    )
    assert JoinCode.objects.count() == 0


def test_the_host_of_up_gets_a_token_when_its_own_does_not_fit() -> None:
    token = credentials.embedded_token("box", "")
    assert token is not None
    assert credentials.embedded_token("box", f"{token}\n") is None
    assert credentials.embedded_token("box", "of an earlier version") not in (None, token)
    assert not credentials.is_valid("box", token)
    credentials.issue("gpu1")
    with pytest.raises(HostNameTaken, match="Another machine has joined as gpu1"):
        credentials.embedded_token("gpu1", "")
