"""Mail about one run, as its bell asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from controlplane.platform.accounts.models import Role
from runs.engine.alerts import delivery
from runs.engine.alerts.models import AlertDelivery, AlertTarget
from runs.engine.models import Run
from runs.engine.states import RunStatus
from tests.controlplane.people import make_user, signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import a_run, an_attempt
from tests.runs.engine.alerts.builders import a_target, an_alert

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
BOX = "ana@example.org"


@pytest.fixture(autouse=True)
def mail_server(settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"


def follow(run: Run, client: Any = None, **sent: str) -> Any:
    return (client or signed_in(Role.VIEWER)).post(f"/runs/{run.pk}/follow", sent or {"mail": BOX})


def told() -> list[tuple[str, list[str]]]:
    delivery.deliver()
    return [(each.subject, each.to) for each in mail.outbox]


def test_whoever_follows_a_run_hears_of_its_end_and_of_no_other_run() -> None:
    run, other = a_run("mine"), a_run("other")
    assert follow(run).status_code == 302
    an_attempt(RunStatus.FAILED, run=other)
    an_attempt(RunStatus.FAILED, run=run)
    assert told() == [("Failed: mine", [BOX])]
    assert f"http://testserver/runs/{run.pk}/" in mail.outbox[0].body


@pytest.mark.parametrize("level", ["warning", "bad"])
def test_whoever_follows_a_run_hears_that_it_needs_attention(level: str) -> None:
    event = an_alert(level)
    follow(event.run)
    delivery.notify(event)
    assert [to for _, to in told()] == [[BOX]]


def test_a_second_address_replaces_the_first_and_stop_ends_it() -> None:
    run, client = a_run("mine"), signed_in(Role.VIEWER)
    follow(run, client)
    follow(run, client, mail="second@example.org")
    assert AlertTarget.objects.get().address == "second@example.org"
    assert "s…@example.org" in client.get(f"/runs/{run.pk}/follow").text
    follow(run, client, stop="yes")
    assert not AlertTarget.objects.exists()
    assert "second@example.org" not in client.get(f"/runs/{run.pk}/follow").text


def test_a_wrong_address_and_a_missing_server_are_told(settings: Any) -> None:
    run, client = a_run("mine"), signed_in(Role.VIEWER)
    assert follow(run, client, mail="nobody").status_code == 422
    settings.EMAIL_HOST = ""
    assert follow(run, client).status_code == 422
    assert "CONTROLPLANE_SMTP_HOST" in client.get(f"/runs/{run.pk}/follow").text
    assert not AlertTarget.objects.exists()


def test_each_sees_and_stops_their_own_alone_and_admins_pages_have_none_of_it() -> None:
    run, program, client = a_run("mine"), Program(), signed_in(Role.VIEWER)
    follow(run, client)
    assert program.get(f"runs/{run.pk}/follow").json() == {"mail": "", "problem": ""}
    path = f"/api/v1/runs/{run.pk}/follow"
    assert program.client.put(path, {"mail": "bo@example.org"}, "application/json").json()["mail"] == "b…@example.org"
    assert program.client.put(path, {"mail": "bo"}, "application/json").status_code == 422
    assert program.delete(f"runs/{run.pk}/follow").json()["mail"] == ""
    target, shown = AlertTarget.objects.get(), signed_in(Role.ADMIN)
    assert list(shown.get("/settings/alerts/").context["targets"]) == []
    assert shown.get(f"/settings/alerts/{target.pk}/").status_code == 404
    assert Program("admin").get("alerts").json()["items"] == []


def test_a_disabled_account_hears_nothing_and_a_team_goes_on_hearing() -> None:
    run = a_run("mine")
    user = make_user(Role.VIEWER)
    follow(run, signed_in(Role.VIEWER))
    target = a_target("team@example.org")
    AlertTarget.objects.exclude(pk=target.pk).update(by=user)
    type(user).objects.filter(pk=user.pk).update(is_active=False)
    an_attempt(RunStatus.FAILED, run=run)
    assert [row.target for row in AlertDelivery.objects.all()] == [target]
