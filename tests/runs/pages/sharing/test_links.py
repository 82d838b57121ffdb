"""Links to runs: who makes them, what they show and hide, and when they end."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from controlplane.platform.accounts.models import ApiScope, Role
from controlplane.platform.logs import _masked
from runs.engine import tags, timeline
from runs.engine.models import Attempt, Run
from runs.engine.sharing import links
from runs.engine.sharing.models import SharedLink
from runs.engine.states import RunStatus
from runs.housekeeping import tasks
from runs.intake.host_api import ingest, uploads
from tests.controlplane.people import signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt, event, train
from tests.runs.pages.sharing.builders import a_link

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

SECRETS = ("gpu-box-7", "/srv/secret", "olga", "PRIVATE_KEY", "What is 6 times 7", "forty-two")


@pytest.fixture
def attempt() -> Attempt:
    """A run whose host, paths, log, environment and completions say things that are nobody else's business."""
    run = a_run("kettle", host=a_host("gpu-box-7"), model="/srv/secret/models/tiny-model")
    attempt = an_attempt(run=run)
    run.spec["hardware"]["env"] = {"PRIVATE_KEY": "x"}
    run.save(update_fields=["spec"])
    ingest.accept(attempt, [train(n, reward=n / 10, kl=0.1) for n in range(1, 6)])
    saved = event(6, "checkpoint", step=5, path="/srv/secret/checkpoint-5", bytes=1, kept=[5])
    ingest.accept(attempt, [saved, event(7, "note", text="on gpu-box-7 in /srv/secret")])
    uploads.log(attempt, "trainer", 0, b"PRIVATE_KEY in /srv/secret")
    sample = {"text": "forty-two", "reward": 1.0, "rewards": {"format": 1.0}}
    uploads.samples(attempt, 1, [{"step": 5, "row": 7, "prompt": "What is 6 times 7?", "completions": [sample]}])
    Attempt.objects.filter(pk=attempt.pk).update(host=run.host, detail="died on gpu-box-7 in /srv/secret")
    return Attempt.objects.get(pk=attempt.pk)


def told(token: str, part: str = "") -> Any:
    return Client().get(f"/shared/{token}/{part}")


def test_a_link_shows_the_run_and_nothing_of_the_installation(attempt: Attempt) -> None:
    _, token = a_link(attempt.run)
    pages = [told(token), told(token, "now"), told(token, "series.json"), told(token, "series.json?metrics=reward,x")]
    assert [page.status_code for page in pages] == [200] * 4
    text = "".join(page.content.decode() for page in pages)
    assert "kettle" in text
    assert "tiny-model" in text
    assert pages[2].json()["series"]["reward"]["value"] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert list(pages[3].json()["series"]) == ["reward"]
    assert [secret for secret in SECRETS if secret in text] == []
    links = re.findall(r'(?:href|src|action|hx-\w+)="([^"]*)"', text)
    assert {link.split("/")[1] for link in links} == {"static"}
    assert not any(page.cookies for page in pages)


def test_a_failed_run_is_told_in_general_words_alone(attempt: Attempt) -> None:
    _, token = a_link(attempt.run)
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.FAILED, reason="oom", ended_at=timezone.now())
    text = told(token).content.decode()
    assert "Out of memory." in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_completions_are_shown_only_if_whoever_shares_wants_so(attempt: Attempt) -> None:
    _, token = a_link(attempt.run, with_completions=True)
    text = told(token).content.decode()
    assert "What is 6 times 7?" in text
    assert "forty-two" in text


def test_nobody_indexes_it_and_no_address_is_passed_on(attempt: Attempt) -> None:
    link, token = a_link(attempt.run)
    for page in (told(token), told(token, "now"), told(token, "series.json"), told("wrong")):
        assert page["X-Robots-Tag"] == "noindex, nofollow"
        assert page["Referrer-Policy"] == "no-referrer"
        assert page["Cache-Control"] == "no-store"
    link.refresh_from_db()
    assert link.opened_at is not None
    assert token not in str(SharedLink.objects.values().get())
    assert len(token) >= 43
    assert _masked(f"Not Found: /shared/{token}/now") == "Not Found: /shared/…/now"


def ends(token: str) -> tuple[int, str]:
    page = told(token)
    return page.status_code, re.sub(r"\s+", " ", re.sub("<[^>]+>", "", page.content.decode()))


def test_a_link_ends_with_its_day_by_hand_and_with_its_run(attempt: Attempt) -> None:
    run = attempt.run
    (first, one), (second, two), (_, three) = a_link(run), a_link(run), a_link(run)
    SharedLink.objects.filter(pk=first.pk).update(expires_at=timezone.now() - timedelta(days=1))
    assert links.revoke(second, run.owner)
    assert not links.revoke(second, run.owner)
    assert [ends(one)[0], ends(two)[0], told(three).status_code] == [410, 410, 200]
    assert "expired on" in ends(one)[1]
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.SUCCEEDED)
    tags.archive([run.pk], run.owner)
    assert ends(three)[0] == 410
    tags.unarchive([run.pk], run.owner)
    assert ends(three)[0] == 410, "what has ended stays so"
    assert list(links.open_links(run)) == []
    said = [each["text"] for each in timeline.events(Run.objects.get(pk=run.pk)) if "link" in each["text"]]
    assert [text[:16] for text in said] == ["Shared the run b"] * 3 + ["Revoked a link t"]
    SharedLink.objects.update(expires_at=timezone.now() - timedelta(days=100))
    tasks.forget_all(timezone.now())
    assert ends(three)[0] == 404
    assert "The address may be mistyped or incomplete" in ends("wrong")[1]


def test_whoever_is_disabled_shares_nothing_any_more(attempt: Attempt) -> None:
    _, token = a_link(attempt.run)
    type(attempt.run.owner).objects.filter(pk=attempt.run.owner_id).update(is_active=False)
    assert told(token).status_code == 410


def test_operators_make_and_revoke_links_on_the_page(attempt: Attempt) -> None:
    address = f"/runs/{attempt.run_id}/share/"
    client = signed_in(Role.OPERATOR)
    page = client.post(address, {"lasts": "30", "with_completions": "on"}, follow=True)
    [shown] = re.findall(r'id="share-address">https?://[^/]+(/shared/[^<]+)</code>', page.text)
    assert Client().get(shown).status_code == 200
    link = SharedLink.objects.get()
    assert (link.with_completions, (link.expires_at - timezone.now()).days) == (True, 29)
    assert shown not in client.get(address).text
    assert client.post(f"{address}{link.pk}/revoke").status_code == 302
    assert Client().get(shown).status_code == 410
    assert signed_in(Role.VIEWER).post(address, {"lasts": "7"}).status_code == 403


def test_a_day_of_ones_own_is_within_the_bound(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    address, client = f"/runs/{attempt.run_id}/share/", signed_in(Role.OPERATOR)
    monkeypatch.setattr(settings, "SHARE_MAX_DAYS", 5)
    today = timezone.now().date()

    def answer(days: int | None) -> int:
        day = "" if days is None else (today + timedelta(days=days)).isoformat()
        return client.post(address, {"lasts": "date", "date": day}).status_code

    assert [answer(days) for days in (None, -1, 6, 3)] == [422, 422, 422, 302]
    assert client.post(address, {"lasts": "30"}).status_code == 422
    assert SharedLink.objects.get().expires_at.date() == today + timedelta(days=3)
    monkeypatch.setattr(settings, "SHARE_MAX_DAYS", 0)
    assert client.post(address, {"lasts": "date", "date": today.isoformat()}).status_code == 422
    assert "turned off" in client.get(address).text


def test_programs_share_too(attempt: Attempt) -> None:
    program = Program()
    made = program.post(f"runs/{attempt.run_id}/links", {"days": 1})
    assert made.status_code == 201
    path = "/shared/" + made.json()["address"].partition("/shared/")[2]
    assert Client().get(path).status_code == 200
    [item] = program.get(f"runs/{attempt.run_id}/links").json()["items"]
    assert item["made_by"] == program.user.username
    assert program.delete(f"runs/{attempt.run_id}/links/{item['id']}").json()["item"]["revoked_at"]
    assert Client().get(path).status_code == 410
    assert program.post(f"runs/{attempt.run_id}/links", {"days": 3000}).status_code == 409
    assert Program(ApiScope.READ).post(f"runs/{attempt.run_id}/links", {}).status_code == 403
