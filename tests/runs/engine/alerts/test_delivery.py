"""From an event to a message that arrives: real servers, the real store, and a clock that is told."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone
from pytest_django.fixtures import Settings

from runs.engine.alerts import delivery
from runs.engine.alerts.models import AlertDelivery, AlertTarget, State
from runs.engine.alerts.tasks import deliver
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from tests.runs.builders import a_run, an_attempt
from tests.runs.engine.alerts.builders import a_target, an_alert
from tests.runs.engine.alerts.servers import OK, answering, hook, mail_server, silent

pytestmark = pytest.mark.django_db


def told(event: RunEvent) -> None:
    delivery.notify(event)


def after(seconds: float) -> None:
    """The next look, so many seconds later."""
    delivery.deliver(timezone.now() + timedelta(seconds=seconds))


def text_of(request: bytes) -> str:
    text: str = json.loads(request.partition(b"\r\n\r\n")[2])["text"]
    return text


def the_delivery() -> AlertDelivery:
    return AlertDelivery.objects.get()


# --- who is told of what ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["bad", "warning"])
def test_an_alert_is_queued_for_those_who_want_its_level(level: str) -> None:
    wanting = a_target(name="wants it", wants=[level])
    a_target(name="wants another", wants=["failed", "bad" if level == "warning" else "warning"])
    a_target(name="is off", wants=[level], enabled=False)
    told(an_alert(level))
    assert the_delivery().target == wanting


@pytest.mark.parametrize("change", [{"state": "closed"}, {"level": "note"}, {"level": 3}])
def test_an_alert_that_closes_or_is_a_note_is_told_to_nobody(change: dict[str, Any]) -> None:
    a_target()
    told(an_alert(**change))
    assert not AlertDelivery.objects.exists()


@pytest.mark.parametrize("end", [RunStatus.FAILED, RunStatus.SUCCEEDED, RunStatus.STOPPED])
def test_the_end_of_a_run_is_told_by_the_move_that_ends_it(end: RunStatus) -> None:
    a_target(name="wants it", wants=[end.value])
    a_target(name="does not", wants=["bad"])
    an_attempt(end)
    assert the_delivery().event.data["to"] == end


def test_a_move_that_is_lost_tells_nobody() -> None:
    a_target()
    attempt = an_attempt(RunStatus.FAILED)
    assert not move(attempt, RunStatus.STOPPED, reason="cancelled", actor="test")
    assert AlertDelivery.objects.count() == 1


def test_runs_of_other_kinds_are_told_of_to_nobody() -> None:
    a_target()
    run = a_run()
    Run.objects.filter(pk=run.pk).update(kind="trial")
    an_attempt(RunStatus.FAILED, run=Run.objects.get(pk=run.pk))
    assert not AlertDelivery.objects.exists()


def test_an_event_is_queued_once_however_often_it_is_told() -> None:
    a_target()
    event = an_alert()
    told(event)
    told(event)
    assert AlertDelivery.objects.count() == 1


def test_telling_takes_few_queries_and_none_for_what_nobody_hears(django_assert_num_queries: Any) -> None:
    a_target(name="one")
    a_target(name="two")
    event, note = an_alert(), RunEvent(kind="checkpoint", data={})
    with django_assert_num_queries(2):
        told(event)
    with django_assert_num_queries(0):
        told(note)


# --- the message --------------------------------------------------------------------------------------------


def test_an_alert_says_what_where_and_links_to_the_run() -> None:
    event = an_alert()
    with hook() as server:
        a_target(server.url)
        told(event)
        after(0)
    link = f"<https://grpo.example/runs/{event.run_id}/|first>"
    assert text_of(server.heard[0]) == f"*Alert: {link}* KL drift: KL is 0.31; the bound is 0.2. Step 412."
    assert the_delivery().state == State.SENT
    assert the_delivery().sent_at


def test_the_end_of_a_run_is_told_with_its_sentence() -> None:
    with hook() as server:
        a_target(server.url)
        attempt = an_attempt(RunStatus.RUNNING)
        Run.objects.update(step=87, max_steps=300)
        move(attempt, RunStatus.FAILED, reason="oom", actor="test", detail="The trainer's log says so.")
        after(0)
    assert "*Failed: <" in text_of(server.heard[0])
    assert "Out of memory. Step 87 of 300. The trainer's log says so." in text_of(server.heard[0])


def test_a_runs_name_calls_nobody_and_makes_no_link() -> None:
    event = an_alert()
    Run.objects.update(name="<!channel> @here <https://evil.example|click>\n*x*")
    with hook() as server:
        a_target(server.url)
        told(event)
        after(0)
    said = text_of(server.heard[0])
    assert "<!channel>" not in said
    assert "@here" not in said
    assert "<https://evil" not in said
    assert "\n" not in said


def test_what_comes_at_once_is_one_message() -> None:
    first = an_alert()
    rest = [
        RunEvent(run=first.run, attempt=first.attempt, at=first.at, kind="alert", data=first.data) for _ in range(29)
    ]
    events = [first, *RunEvent.objects.bulk_create(rest)]
    with hook() as server:
        a_target(server.url)
        for event in events:
            told(event)
        after(0)
    assert len(server.heard) == 1
    lines = text_of(server.heard[0]).splitlines()
    assert (len(lines), lines[-1]) == (13, "… and 18 more.")
    assert not AlertDelivery.objects.exclude(state=State.SENT).exists()


def test_what_is_told_late_says_when_it_was() -> None:
    event = an_alert()
    with hook() as server:
        a_target(server.url)
        told(event)
        after(3600)
    assert f"({event.at:%Y-%m-%d %H:%M} UTC)" in text_of(server.heard[0])


# --- tries --------------------------------------------------------------------------------------------------


def test_a_server_that_is_busy_is_asked_again_after_a_while() -> None:
    with hook(answering("503 Busy", "come back")) as server:
        a_target(server.url)
        told(an_alert())
        after(0)
        after(5)  # too early
    waiting = the_delivery()
    assert (waiting.state, waiting.tries, len(server.heard)) == (State.WAITING, 1, 1)
    assert waiting.error == "The server answered 503: come back"
    with hook() as server:
        AlertTarget.objects.all().delete()
        a_target(server.url)
        told(RunEvent.objects.get(kind="alert"))
        after(60)
    assert (the_delivery().state, the_delivery().error) == (State.SENT, "")


def test_a_server_that_says_when_is_asked_then() -> None:
    with hook(answering("429 Slow", "", "Retry-After: 120")) as server:
        a_target(server.url)
        told(an_alert())
        after(0)
    assert the_delivery().due_at > timezone.now() + timedelta(seconds=100)


def test_what_never_works_is_given_up_and_a_person_may_have_it_tried_again() -> None:
    target = a_target("http://127.0.0.1:9/")  # nobody listens there
    told(an_alert())
    for _ in range(20):
        after(86400)
    given_up = the_delivery()
    assert (given_up.state, given_up.tries) == (State.FAILED, len(delivery.RETRY_DELAYS_S) + 1)
    assert "refused" in given_up.error
    assert delivery.retry(given_up)
    assert not delivery.retry(given_up)
    assert the_delivery().state == State.WAITING
    assert target.deliveries.count() == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answering("404 Not Found", "no_service"), "The server answered 404: no_service"),
        (answering("302 Found", "", "Location: http://169.254.169.254/"), "a redirect, which is not followed"),
    ],
)
def test_an_answer_that_will_not_change_ends_the_tries(answer: bytes, why: str) -> None:
    with hook(answer) as server:
        a_target(server.url)
        told(an_alert())
        after(0)
    assert the_delivery().state == State.FAILED
    assert why in the_delivery().error


def test_a_private_address_without_an_admins_word_gets_nothing() -> None:
    with hook() as server:
        a_target(server.url, private_too=False)
        told(an_alert())
        after(0)
    assert server.heard == []
    assert (the_delivery().state, the_delivery().tries) == (State.FAILED, 1)
    assert "private address" in the_delivery().error


def test_a_target_that_does_not_answer_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery.sending, "DEADLINE_S", 0.3)
    with hook(silent) as dead, hook() as alive:
        a_target(dead.url, name="a dead one")
        a_target(alive.url, name="one that lives")
        told(an_alert())
        after(0)
    states = dict(AlertDelivery.objects.values_list("target__name", "state"))
    assert states == {"a dead one": State.WAITING, "one that lives": State.SENT}


def test_a_try_that_is_under_way_is_nobody_elses() -> None:
    with hook() as server:
        target = a_target(server.url)
        told(an_alert())
        assert delivery._claim(target.pk, timezone.now())  # another worker, which then dies
        after(1)
        assert server.heard == []
        after(delivery.CLAIM_S + 1)
    assert (len(server.heard), the_delivery().tries) == (1, 2)


def test_whoever_was_too_slow_settles_nothing() -> None:
    target = a_target("http://127.0.0.1:9/")
    told(an_alert())
    slow = delivery._claim(target.pk, timezone.now())
    delivery._claim(target.pk, timezone.now() + timedelta(seconds=delivery.CLAIM_S + 1))
    delivery._record_outcome(slow, None)
    assert the_delivery().state == State.WAITING


def test_an_address_sealed_with_another_key_is_told_to_be_entered_anew() -> None:
    a_target()
    told(an_alert())
    with override_settings(SECRET_KEY="another one"):
        after(0)
    assert the_delivery().state == State.FAILED
    assert "Enter the address again" in the_delivery().error


def test_an_earlier_key_still_opens_what_it_sealed() -> None:
    with override_settings(SECRET_KEY="the earlier one"):
        target = a_target()
    with override_settings(SECRET_KEY="the newer one", SECRET_KEY_FALLBACKS=["the earlier one"]):
        assert target.address == "https://hooks.example/services/T0/B0/secret"


def test_what_nobody_foresaw_is_shown_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a_target()
    told(an_alert())
    monkeypatch.setattr(delivery.sending, "send", lambda *_: 1 / 0)
    after(0)
    assert the_delivery().state == State.WAITING
    assert "control worker's log" in the_delivery().error


def test_the_address_stands_in_no_log_and_no_table(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    with hook(answering("500 No")) as server:
        target = a_target(server.url)
        told(an_alert())
        after(0)
    assert "a-secret-part" not in caplog.text
    row = AlertTarget.objects.filter(pk=target.pk).values().get()
    assert "a-secret-part" not in str(row) + the_delivery().error


def test_the_task_sends_what_is_due() -> None:
    with hook(OK) as server:
        delivery.queue_test(a_target(server.url))
        deliver()
    assert "This is a test." in text_of(server.heard[0])


# --- mail ---------------------------------------------------------------------------------------------------


@pytest.fixture
def smtp(settings: Settings) -> Any:
    def use(port: int) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", port, False
        settings.DEFAULT_FROM_EMAIL = "grpo@example.org"

    return use


def test_a_mail_arrives_at_everybody_of_a_target(smtp: Any) -> None:
    with mail_server() as server:
        smtp(server.port)
        a_target("ana@example.org, bo@example.org")
        told(an_alert())
        after(0)
    assert "To: ana@example.org, bo@example.org" in server.mails[0]
    assert "Subject: Alert: first" in server.mails[0]
    assert "KL drift: KL is 0.31; the bound is 0.2. Step 412." in server.mails[0]
    assert the_delivery().state == State.SENT


def test_a_mail_that_is_refused_says_why(smtp: Any) -> None:
    with mail_server(refuses="550 no such mailbox") as server:
        smtp(server.port)
        a_target("nobody@example.org")
        told(an_alert())
        after(0)
    assert (the_delivery().state, the_delivery().error) == (
        State.FAILED,
        "The mail server rejected nobody@example.org.",
    )


def test_a_mail_server_that_is_away_is_tried_again(smtp: Any) -> None:
    smtp(9)
    a_target("ana@example.org")
    told(an_alert())
    after(0)
    assert the_delivery().state == State.WAITING
    assert "couldn't be mailed" in the_delivery().error


def test_without_a_mail_server_the_reason_names_the_setting(settings: Settings) -> None:
    settings.EMAIL_HOST = ""
    a_target("ana@example.org")
    told(an_alert())
    after(0)
    assert "CONTROLPLANE_SMTP_HOST" in the_delivery().error


# --- what is kept -------------------------------------------------------------------------------------------


def test_the_oldest_messages_that_are_settled_go_and_what_waits_stays() -> None:
    target = a_target()
    states = [State.WAITING, State.SENT, State.FAILED, State.SENT, State.WAITING, State.SENT]
    rows = [AlertDelivery.objects.create(target=target, state=state, due_at=timezone.now()) for state in states]
    assert delivery.forget(limit=2) == 2
    left = AlertDelivery.objects.order_by("pk").values_list("pk", flat=True)
    assert list(left) == [rows[i].pk for i in (0, 3, 4, 5)]
    assert delivery.forget(limit=2) == 0


def test_what_is_kept_of_messages_is_bounded_by_the_task_that_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    target = a_target()
    for _ in range(5):
        AlertDelivery.objects.create(target=target, state=State.SENT, due_at=timezone.now())
    monkeypatch.setattr(delivery.forget, "__defaults__", (3,))
    deliver()
    assert AlertDelivery.objects.count() == 3
