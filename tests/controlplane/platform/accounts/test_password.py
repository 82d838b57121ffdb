from __future__ import annotations

import pytest
from django.test import Client

from controlplane.platform.accounts.models import Role, User
from controlplane.setup.serving.serving import bind_problem
from tests.controlplane.people import PASSWORD, make_user, signed_in

pytestmark = pytest.mark.django_db
NEW = "another long pass phrase"


def change(client: Client, **fields: str):
    return client.post("/password/", {"current": PASSWORD, "new": NEW, "again": NEW, **fields})


def test_changing_the_password_ends_every_other_session():
    user = make_user()
    here, there = signed_in(user=user), signed_in(user=user)
    assert change(here)["Location"] == "/settings/"
    assert here.get("/password/").status_code == 200
    assert there.get("/password/").status_code == 302


def test_a_first_password_is_set_without_an_old_one():
    user = make_user(password=None)
    client = signed_in(user=user)
    assert b"Current password" not in client.get("/password/").content
    answer = client.post("/password/", {"new": NEW, "again": NEW}, follow=True)
    assert answer.redirect_chain == [("/", 302), ("/start/", 302)]
    assert "Your password is set." in answer.content.decode()
    assert User.objects.get(pk=user.pk).check_password(NEW)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"current": "wrong"}, "That is not your current password."),
        ({"again": "something else"}, "The two passwords differ."),
        ({"new": "short", "again": "short"}, "too short"),
        ({"new": "password123456", "again": "password123456"}, ""),
        ({"current": ""}, "This field is required."),
    ],
)
def test_a_password_that_will_not_do_changes_nothing(fields, said):
    user = make_user()
    answer = change(signed_in(user=user), **fields)
    assert said in answer.content.decode()
    if said:
        assert answer.status_code == 422
        assert User.objects.get(pk=user.pk).check_password(PASSWORD)


def test_guesses_at_the_current_password_are_slowed_down():
    client = signed_in()
    for _ in range(5):
        change(client, current="wrong")
    assert b"Too many wrong passwords" in change(client).content


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_the_web_may_always_listen_on_loopback(host):
    assert bind_problem(host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.4", "gpu-box", "localhost.evil.example"])
def test_the_web_listens_beyond_this_machine_only_once_an_admin_has_a_password(host):
    make_user(Role.ADMIN, password=None)
    make_user(Role.OPERATOR)
    assert "no admin has a password" in (bind_problem(host) or "")
    make_user(Role.ADMIN)
    assert bind_problem(host) is None
