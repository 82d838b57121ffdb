"""The alerts page: what admins keep there, and what nobody else sees."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from runs.engine.alerts import delivery
from runs.engine.alerts.models import AlertDelivery, AlertTarget, State
from tests.controlplane.people import admin, operator
from tests.runs.engine.alerts.builders import a_target, an_alert
from tests.runs.engine.alerts.servers import answering, hook

pytestmark = pytest.mark.django_db

SLACK = "https://hooks.slack.com/services/T000/B000/a-secret-part"
PAGE = "/settings/alerts/"


def sent(**changes: Any) -> dict[str, Any]:
    start = {"name": "team", "kind": "webhook", "address": SLACK, "wants": ["bad", "failed"], "enabled": "on"}
    return {**start, "links_to": "https://grpo.example/", **changes}


def test_an_admin_adds_a_target_whose_address_is_shown_to_nobody_again() -> None:
    client = admin()
    page = client.post(PAGE, sent(), follow=True).content.decode()
    target = AlertTarget.objects.get()
    assert (target.address, target.wants, target.by.role) == (SLACK, ["bad", "failed"], "admin")
    assert "https://hooks.slack.com/…part" in page
    assert "a-secret" not in page + client.get(f"{PAGE}{target.pk}/").content.decode()


def test_the_form_starts_with_the_address_that_the_admin_came_to() -> None:
    assert 'value="http://testserver/"' in admin().get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"address": "hooks.slack.com/x"}, "starts with https"),
        ({"address": "ftp://chat.example/x"}, "starts with https"),
        ({"address": "https://"}, "starts with https"),
        ({"address": "https://ana:pass@chat.example/"}, "not allowed"),
        ({"address": "http://chat.example/"}, "require https"),
        ({"address": "http://localhost:9/x"}, "allow private addresses below"),
        ({"address": "https://10.1.2.3/x"}, "allow private addresses below"),
        ({"address": "https://chat.example:99999999/"}, "its host or port is invalid"),
        ({"address": "https://[::1/x"}, "not a web address"),
        ({"address": ""}, "required"),
        ({"address": "https://x/" + "y" * 3000}, "at most 2000"),
        ({"kind": "mail"}, "valid email"),
        ({"kind": "mail", "address": "a@x.org,b"}, "valid email"),
        ({"kind": "mail", "address": "a@x.org\nBcc: b@x.org"}, "valid email"),
        ({"kind": "mail", "address": ",".join(["a@x.org"] * 11)}, "at most 10"),
        ({"wants": []}, "Choose at least one"),
        ({"wants": ["everything"]}, "everything is not one"),
        ({"links_to": "javascript:alert(1)"}, "valid URL"),
    ],
)
def test_what_will_not_do_is_said_beside_its_field(change: dict[str, Any], why: str) -> None:
    answer = admin().post(PAGE, sent(**change))
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert not AlertTarget.objects.exists()


def test_an_address_that_was_refused_is_not_forgotten_while_it_is_mended() -> None:
    assert SLACK in admin().post(PAGE, sent(wants=[])).content.decode()


def test_an_empty_address_keeps_the_one_there_is() -> None:
    target = a_target(SLACK)
    admin().post(f"{PAGE}{target.pk}/", sent(name="the team", address=""))
    target.refresh_from_db()
    assert (target.name, target.address, target.private_too) == ("the team", SLACK, False)


def test_sent_in_another_way_it_needs_another_address() -> None:
    target = a_target(SLACK)
    answer = admin().post(f"{PAGE}{target.pk}/", sent(kind="mail", address=""))
    assert b"Enter a new address" in answer.content
    admin().post(f"{PAGE}{target.pk}/", sent(kind="mail", address="ana@example.org"))
    target.refresh_from_db()
    assert target.shown == "a…@example.org"


def test_a_target_that_is_switched_off_gets_nothing_of_what_waits() -> None:
    target = a_target(SLACK)
    delivery.notify(an_alert())
    admin().post(f"{PAGE}{target.pk}/", {k: v for k, v in sent(address="").items() if k != "enabled"})
    waiting = AlertDelivery.objects.get()
    assert (waiting.state, waiting.error) == (State.FAILED, "The target is turned off.")


def test_a_test_is_sent_and_its_end_is_on_the_page() -> None:
    client = admin()
    with hook(answering("403 No", "invalid_token")) as server:
        target = a_target(server.url)
        client.post(f"{PAGE}{target.pk}/test/")
        assert "Waiting" in client.get(f"{PAGE}deliveries/").content.decode()
        delivery.deliver()
    page = client.get(PAGE).content.decode()
    assert "The server answered 403: invalid_token" in page
    assert "Not sent" in page


def test_what_was_given_up_can_be_tried_again() -> None:
    client = admin()
    with hook() as server:
        target = a_target(server.url)
        row = AlertDelivery.objects.create(target=target, state=State.FAILED, tries=9, due_at=target.updated_at)
        client.post(f"{PAGE}deliveries/{row.pk}/again/")
        delivery.deliver()
    row.refresh_from_db()
    assert row.state == State.SENT


def test_a_name_of_markup_is_text() -> None:
    a_target(SLACK, name="<b>x</b>")
    page = admin().get(PAGE).content.decode()
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def test_a_deleted_target_takes_its_address_along() -> None:
    target = a_target(SLACK)
    delivery.queue_test(target)
    admin().post(f"{PAGE}{target.pk}/delete/")
    assert not AlertTarget.objects.exists()
    assert not AlertDelivery.objects.exists()


def test_the_page_of_deliveries_takes_few_queries(django_assert_max_num_queries: Any) -> None:
    target = a_target(SLACK)
    event = an_alert()
    delivery.notify(event)
    for _ in range(30):
        delivery.queue_test(target)
    client = admin()
    with django_assert_max_num_queries(4):
        assert client.get(f"{PAGE}deliveries/").content.count(b"<tr>") == 32


@pytest.mark.parametrize("path", ["", "1/", "deliveries/"])
def test_alerts_are_for_admins(path: str) -> None:
    assert operator().get(PAGE + path).status_code == 403


def test_without_a_mail_server_the_form_says_so(settings: Settings) -> None:
    settings.EMAIL_HOST = ""
    assert b"Mail needs a mail server" in admin().get(PAGE).content
