"""Users, secrets and targets of alerts by the API."""

from __future__ import annotations

import pytest

from controlplane.platform.accounts.models import ApiScope, Role, Secret, User
from runs.engine.alerts.models import AlertTarget
from tests.controlplane.people import make_user
from tests.runs.api.clients import Program

pytestmark = pytest.mark.django_db
KEY = "sk-very-secret"
ENDPOINT = {"name": "JUDGE", "address": "https://judge.example/v1", "key": KEY}


def test_a_user_is_invited_by_a_link_and_gets_another_role_and_limits() -> None:
    program = Program(ApiScope.ADMIN)
    invited = program.post("users", {"username": "nina", "role": "operator"}).json()
    assert invited["link"].startswith("http://testserver/sign-in/once/")
    path = f"users/{invited['item']['id']}"
    changed = program.patch(path, {"role": "viewer", "max_running": 2}).json()["item"]
    assert (changed["role"], changed["max_running"], changed["max_queued"]) == ("viewer", 2, None)
    assert program.patch(path, {"max_running": None}).json()["item"]["max_running"] is None
    assert program.post("users", {"username": "nina"}).json()["error"]["where"] == "username"
    assert "password" not in str(program.get("users").json())


def test_the_last_admin_stays_and_a_disabled_user_gets_no_link() -> None:
    program, other = Program(ApiScope.ADMIN), make_user(Role.VIEWER)
    assert program.patch(f"users/{program.user.pk}", {"role": "viewer"}).status_code == 409
    assert program.patch(f"users/{program.user.pk}", {"active": False}).status_code == 409
    assert not program.patch(f"users/{other.pk}", {"active": False}).json()["item"]["active"]
    assert program.post(f"users/{other.pk}/link").status_code == 409
    assert User.objects.get(pk=program.user.pk).role == Role.ADMIN


def test_a_secret_is_stored_changed_and_deleted_and_no_answer_has_its_key() -> None:
    program = Program(ApiScope.ADMIN)
    stored = program.post("secrets", ENDPOINT)
    assert stored.status_code == 201, stored.json()
    path = f"secrets/{stored.json()['item']['id']}"
    assert program.patch(path, {"name": "OTHER"}).json()["item"]["name"] == "OTHER"
    assert Secret.objects.get().key() == KEY
    assert program.patch(path, {"address": "https://evil.example"}).json()["error"]["where"] == "key"
    assert KEY not in stored.content.decode() + program.get("secrets").content.decode()
    assert program.delete(path).status_code == 204


def test_an_operators_token_reads_no_names_of_secrets() -> None:
    assert Program().get("secrets").status_code == 403


def test_alerts_get_a_target_a_test_and_are_switched_off() -> None:
    program = Program(ApiScope.ADMIN)
    webhook = {"name": "ops", "address": "https://hooks.example/services/T000/B000/secret"}
    made = program.post("alerts", {**webhook, "links_to": "https://grpo.example/"})
    assert made.status_code == 201, made.json()
    path = f"alerts/{made.json()['item']['id']}"
    assert "services" not in made.json()["item"]["address"]
    assert program.post(f"{path}/test").status_code == 202
    assert not program.patch(path, {"enabled": False}).json()["item"]["enabled"]
    [sent] = program.get("alerts/deliveries").json()["items"]
    assert (sent["state"], sent["error"]) == ("failed", "The target is turned off.")
    assert program.post(f"alerts/deliveries/{sent['id']}/again").status_code == 200
    assert program.delete(path).status_code == 204
    assert not AlertTarget.objects.exists()


def test_a_user_sees_and_revokes_their_own_tokens_and_an_admin_everybodys() -> None:
    program, other = Program(), Program(user=make_user(Role.OPERATOR))
    assert [each["id"] for each in program.get("tokens").json()["items"]] == [program.token.pk]
    assert program.post(f"tokens/{other.token.pk}/revoke").status_code == 404
    assert Program(ApiScope.ADMIN).post(f"tokens/{other.token.pk}/revoke").json()["item"]["revoked_at"]
    assert other.get("me").status_code == 401
    assert program.text not in program.get("tokens").content.decode()


def test_no_answer_is_kept_by_a_cache() -> None:
    assert Program().get("me")["Cache-Control"] == "no-store"


def test_a_refused_change_of_a_user_changes_nothing() -> None:
    program = Program(ApiScope.ADMIN)
    make_user(Role.ADMIN)
    assert program.patch(f"users/{program.user.pk}", {"role": "viewer", "active": False}).status_code == 409
    assert User.objects.get(pk=program.user.pk).role == Role.ADMIN
