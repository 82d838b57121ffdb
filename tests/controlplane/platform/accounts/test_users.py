from __future__ import annotations

import re

import pytest
from django.test import Client

from controlplane.platform.accounts.models import Role, User
from tests.controlplane.people import admin, make_user, operator, signed_in

pytestmark = pytest.mark.django_db


def test_an_admin_invites_somebody_whose_link_leads_in():
    boss = admin()
    page = boss.post("/users/", {"username": "ana", "role": "operator"}, follow=True).content.decode()
    link = re.search(r"http://testserver/sign-in/once/[^<\"]+", page)
    assert link[0] not in boss.get("/users/").content.decode()
    client = Client()
    client.post(link[0])
    assert client.get("/password/").status_code == 200
    assert User.objects.get(username="ana").role == Role.OPERATOR


@pytest.mark.parametrize("name", ["", "a b", "<script>", "x" * 151])
def test_a_name_that_will_not_do_makes_no_user(name):
    client = admin()
    assert client.post("/users/", {"username": name, "role": "viewer"}).status_code == 422
    assert User.objects.count() == 1


@pytest.mark.parametrize("path", ["/users/", "/users/1/", "/users/1/active/", "/users/1/link/"])
def test_users_are_for_admins(path):
    assert operator().post(path).status_code == 403
    assert b"requires the admin role" in operator().post(path).content


@pytest.mark.parametrize("path", ["/users/1/", "/users/1/active/", "/users/1/link/"])
def test_changes_take_a_post(path):
    answer = admin().get(path)
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert "only accepts forms" in answer.content.decode()
    assert admin().get(path, headers={"Accept": "application/json"}).json()["error"]["what"]


def test_an_admin_gives_a_role():
    user = make_user()
    admin().post(f"/users/{user.pk}/", {"role": "operator"})
    user.refresh_from_db()
    assert user.may_operate


def test_disabling_somebody_ends_the_session_and_enabling_lets_back_in():
    boss, user = admin(), make_user()
    client = signed_in(user=user)
    boss.post(f"/users/{user.pk}/active/", {"active": "0"})
    assert client.get("/password/").status_code == 302
    boss.post(f"/users/{user.pk}/active/", {"active": "1"})
    assert signed_in(user=user).get("/password/").status_code == 200


def test_there_is_always_an_admin():
    only = make_user(Role.ADMIN)
    client = signed_in(user=only)
    refused = client.post(f"/users/{only.pk}/", {"role": "viewer", "max_running": "3"}, follow=True)
    assert "The last admin must keep this role" in refused.content.decode()
    refused = client.post(f"/users/{only.pk}/active/", {"active": "0"}, follow=True)
    assert "another admin can" in refused.content.decode()
    only.refresh_from_db()
    assert only.may_administer
    assert only.is_active
    assert only.max_running is None
