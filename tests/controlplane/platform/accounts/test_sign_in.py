from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.platform.accounts import throttle
from controlplane.platform.accounts.models import FailedSignIn, Role, User
from tests.controlplane.people import PASSWORD, make_user, signed_in

pytestmark = pytest.mark.django_db


def sign_in(client: Client, user: User, password: str = PASSWORD, **more: str) -> int:
    return client.post("/sign-in/", {"username": user.username, "password": password, **more}).status_code


def test_the_right_password_signs_in_and_leads_where_the_person_wanted_to_go():
    client, user = Client(), make_user()
    answer = client.post("/sign-in/", {"username": user.username, "password": PASSWORD, "next": "/datasets/"})
    assert answer.status_code == 302
    assert answer["Location"] == "/datasets/"
    assert client.get("/password/").status_code == 200


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "sign_out"])
def test_sign_in_never_leads_to_another_site(elsewhere):
    user = make_user()
    answer = Client().post("/sign-in/", {"username": user.username, "password": PASSWORD, "next": elsewhere})
    assert answer["Location"].startswith("/")
    assert not answer["Location"].startswith("//")


def test_a_wrong_password_and_an_unknown_name_get_the_same_answer():
    user = make_user()
    wrong = Client().post("/sign-in/", {"username": user.username, "password": "no"})
    unknown = Client().post("/sign-in/", {"username": "nobody", "password": "no"})
    assert wrong.status_code == unknown.status_code == 422
    assert b"Name or password is wrong." in wrong.content
    assert b"Name or password is wrong." in unknown.content
    assert re.findall(rb'name="(\w+)"[^>]* autofocus', Client().get("/sign-in/").content) == [b"username"]
    assert re.findall(rb'name="(\w+)"[^>]* autofocus', wrong.content) == [b"password"]


def test_a_disabled_person_cannot_sign_in_and_loses_the_session():
    user = make_user()
    client = signed_in(user=user)
    user.is_active = False
    user.save()
    assert sign_in(Client(), user) == 422
    assert client.get("/password/").status_code == 302


def test_a_person_without_a_password_cannot_sign_in_with_an_empty_one():
    assert sign_in(Client(), make_user(password=None), "") == 422


def test_after_five_wrong_passwords_even_the_right_one_has_to_wait():
    client, user = Client(), make_user()
    for _ in range(throttle.PER_NAME_AND_ADDRESS):
        sign_in(client, user, "wrong")
    assert sign_in(client, user) == 422
    FailedSignIn.objects.update(at=timezone.now() - throttle.WINDOW - timedelta(seconds=1))
    assert sign_in(client, user) == 302


def test_guesses_from_one_address_are_counted_over_all_names():
    client, user = Client(), make_user()
    for i in range(throttle.PER_ADDRESS):
        client.post("/sign-in/", {"username": f"guess{i}", "password": "wrong"})
    assert (
        b"Too many wrong passwords"
        in client.post("/sign-in/", {"username": user.username, "password": PASSWORD}).content
    )


def test_guessing_from_one_address_does_not_lock_the_person_out_elsewhere():
    user = make_user()
    for _ in range(throttle.PER_NAME_AND_ADDRESS):
        sign_in(Client(REMOTE_ADDR="203.0.113.9"), user, "wrong")
    assert sign_in(Client(), user) == 302


def test_guesses_count_before_they_are_checked():
    """Of many guesses at once, each would otherwise see only the failures that were noted before it."""
    allowed = [throttle.begin_try("ann", "203.0.113.9") for _ in range(throttle.PER_NAME_AND_ADDRESS + 3)]
    assert [each is not None for each in allowed] == [True] * throttle.PER_NAME_AND_ADDRESS + [False] * 3


@pytest.mark.parametrize("address", ["9" * 120, "203.0.113.9"])
def test_an_address_of_any_length_is_counted(address: str):
    user = make_user()
    for _ in range(throttle.PER_NAME_AND_ADDRESS):
        assert sign_in(Client(REMOTE_ADDR=address), user, "wrong") == 422
    assert sign_in(Client(REMOTE_ADDR=address), user) == 422
    assert not FailedSignIn.objects.filter(address__regex=".{65}").exists()


def test_sign_out_takes_a_post_and_ends_the_session():
    client = signed_in()
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/").status_code == 302
    assert client.get("/password/").status_code == 302


def test_a_post_without_a_csrf_token_is_refused():
    client = signed_in(Role.ADMIN, csrf=True)
    answer = client.post("/sign-out/")
    assert answer.status_code == 403
    assert b"This form was out of date" in answer.content
    assert client.get("/password/").status_code == 200


def test_a_script_gets_401_instead_of_the_sign_in_page():
    assert Client().get("/password/", headers={"HX-Request": "true"})["HX-Redirect"] == "/sign-in/"
    answer = Client().get("/password/", headers={"Accept": "application/json"})
    assert answer.status_code == 401
    assert answer.json()["error"]["what"] == "Not signed in."
