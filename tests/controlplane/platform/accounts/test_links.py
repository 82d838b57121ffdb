from __future__ import annotations

import logging
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.platform.accounts import onetime
from controlplane.platform.accounts.models import Role, SignInLink, User
from controlplane.platform.logs import MaskLinkTokens
from controlplane.setup.serving.welcome import owner
from tests.controlplane.people import make_user, viewer

pytestmark = pytest.mark.django_db
BASE = "http://testserver"


def test_a_link_signs_in_once():
    link = onetime.make_link(make_user(), BASE)
    first, second = Client(), Client()
    assert first.get(link).status_code == 302
    assert first.get("/password/").status_code == 200
    assert second.get(link).status_code == 410
    assert "you are signed in as" in first.get(link).content.decode()
    assert second.get("/password/").status_code == 302


def test_a_link_leads_to_its_page_on_this_site_only():
    for to, leads_to in (("", "/"), ("/demo/", "/demo/"), ("https://elsewhere.example/", "/")):
        assert Client().get(onetime.make_link(make_user(), BASE, to=to))["Location"] == leads_to


def test_a_link_runs_out():
    link = onetime.make_link(make_user(), BASE, valid_for=timedelta(seconds=-1))
    assert Client().get(link).status_code == 410


def test_the_link_of_a_disabled_person_does_nothing():
    user = make_user()
    link = onetime.make_link(user, BASE)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert Client().get(link).status_code == 410


def test_a_made_up_token_is_refused():
    assert Client().get("/sign-in/once/nonsense/").status_code == 410


def test_looking_before_the_click_does_not_use_a_link_up():
    link = onetime.make_link(make_user(), BASE)
    Client().get(link, headers={"Sec-Purpose": "prefetch"})
    assert Client().head(link).status_code == 405
    assert Client().get(link).status_code == 302


def test_an_invitation_asks_before_it_is_used_up_and_leads_to_the_password():
    link = onetime.invite(make_user(password=None), BASE)
    client = Client()
    assert client.get(link).status_code == 200
    assert client.post(link)["Location"] == "/password/set/"


def test_a_new_invitation_takes_the_place_of_the_old_one():
    user = make_user()
    old = onetime.invite(user, BASE)
    onetime.invite(user, BASE)
    assert Client().get(old).status_code == 410


def test_the_token_is_nowhere_in_the_database():
    token = onetime.make_link(make_user(), BASE).rstrip("/").rpartition("/")[2]
    kept = SignInLink.objects.values_list().get()
    assert token not in repr(kept)


def test_old_links_are_thrown_away_when_a_new_one_is_made():
    user = make_user()
    onetime.make_link(user, BASE)
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(days=1))
    onetime.make_link(user, BASE)
    assert SignInLink.objects.count() == 1


def test_the_first_admin_is_made_once_and_has_no_password():
    first = owner()
    assert (first.username, first.role, first.has_usable_password()) == ("admin", Role.ADMIN, False)
    assert owner() == first


def test_an_installation_with_an_admin_keeps_its_people():
    somebody = make_user(Role.ADMIN)
    assert owner() == somebody
    assert User.objects.count() == 1


def test_who_forgot_the_password_sets_a_new_one_after_a_link_and_only_soon_after():
    user = make_user()
    client, new = Client(), "another long pass phrase"
    client.post(onetime.invite(user, BASE))
    assert client.post("/password/", {"new": new, "again": new}).status_code == 302
    assert User.objects.get(pk=user.pk).check_password(new)
    assert client.post("/password/", {"new": new, "again": new}).status_code == 422


def test_a_session_that_a_link_began_long_ago_is_asked_for_the_password(monkeypatch):
    client = Client()
    client.post(onetime.invite(make_user(), BASE))
    monkeypatch.setattr("controlplane.platform.accounts.views.LINK_PROVES_FOR_S", 0.0)
    assert b"Current password" in client.get("/password/").content


@pytest.fixture
def logged(monkeypatch) -> StringIO:
    """What arrives in the web's log, through the handler of the settings."""
    handler = next(h for h in logging.getLogger().handlers if any(isinstance(f, MaskLinkTokens) for f in h.filters))
    log = StringIO()
    monkeypatch.setattr(handler, "stream", log)
    return log


def test_no_log_line_holds_the_token_of_a_link(logged, monkeypatch):
    link = onetime.invite(make_user(), BASE)
    token = link.rstrip("/").rpartition("/")[2]
    assert Client(enforce_csrf_checks=True).post(link).status_code == 403
    monkeypatch.setattr(onetime, "use", lambda token: Path(f"/sign-in/once/{token}/").read_text())
    assert Client(raise_request_exception=False).post(link).status_code == 500
    SignInLink.objects.all().delete()
    assert Client().get(link).status_code == 410
    for kind in ("Forbidden", "Internal Server Error", "FileNotFoundError", "Gone"):
        assert kind in logged.getvalue()
    assert "/sign-in/once/…/" in logged.getvalue()
    assert token not in logged.getvalue()


def test_a_refusal_is_one_line_and_a_crash_has_its_traceback(logged, monkeypatch):
    client = viewer()
    client.raise_request_exception = False
    assert client.get("/users/").status_code == 403
    assert "Forbidden" in logged.getvalue()
    assert "Traceback" not in logged.getvalue()
    monkeypatch.setattr("controlplane.catalogue.datasets.pages.views.listing", lambda request: 1 / 0)
    assert client.get("/datasets/").status_code == 500
    assert "ZeroDivisionError" in logged.getvalue().partition("Traceback")[2]


@pytest.mark.parametrize("name", ["uvicorn.error", "uvicorn.asgi"])
def test_the_web_servers_own_loggers_mask_tokens_too(name):
    assert any(isinstance(f, MaskLinkTokens) for f in logging.getLogger(name).filters)
