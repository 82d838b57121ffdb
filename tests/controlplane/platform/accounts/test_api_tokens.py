from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, ApiToken, ApiTokenAct, Role
from tests.controlplane.people import PASSWORD, admin, make_user, signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import a_run

pytestmark = pytest.mark.django_db
ASKED = {"name": "laptop", "scope": "read", "days": "30"}


def test_a_token_is_shown_once_and_only_its_hash_is_kept():
    client = signed_in()
    page = client.post("/settings/tokens/", ASKED, follow=True).content.decode()
    text = re.search(r"grpo_[\w-]+", page)[0]
    assert text not in client.get("/settings/tokens/").content.decode()
    assert ApiToken.objects.get().token_hash == api_tokens.hashed(text)
    assert api_tokens.find(text).name == "laptop"


@pytest.mark.parametrize("change", [{"scope": "operate"}, {"scope": "all"}, {"name": " "}, {"days": "36500"}])
def test_a_token_is_within_its_users_role_has_a_name_and_an_end(change):
    assert signed_in(Role.VIEWER).post("/settings/tokens/", ASKED | change).status_code == 422
    assert not ApiToken.objects.exists()


def test_a_revoked_and_an_expired_token_are_refused():
    revoked, expired = Program(), Program()
    signed_in(user=revoked.user).post(f"/settings/tokens/{revoked.token.pk}/revoke/")
    ApiToken.objects.filter(pk=expired.token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert [program.get("me").status_code for program in (revoked, expired)] == [401, 401]


def test_a_token_of_somebody_else_is_revoked_by_an_admin_only():
    program = Program()
    address = f"/settings/tokens/{program.token.pk}/revoke/"
    assert signed_in(Role.OPERATOR).post(address).status_code == 404
    admin().post(address)
    assert program.get("me").status_code == 401


def test_disabling_a_user_ends_the_tokens_for_good():
    program, boss = Program(), admin()
    for active in ("0", "1"):
        boss.post(f"/users/{program.user.pk}/active/", {"active": active})
    assert program.get("me").status_code == 401


def test_a_new_password_ends_the_tokens():
    user = make_user()
    program = Program(ApiScope.READ, user=user)
    new = {"current": PASSWORD, "new": "another long pass phrase", "again": "another long pass phrase"}
    signed_in(user=user).post("/password/", new)
    assert program.get("me").status_code == 401


def test_what_was_done_with_a_token_can_be_read_afterwards():
    program, run = Program(), a_run()
    program.post(f"runs/{run.pk}/stop", {"mode": "now"})
    page = signed_in(user=program.user).get("/settings/tokens/").content.decode()
    assert f"POST /api/v1/runs/{run.pk}/stop" in page
    acts = ApiTokenAct.objects.values_list("what", "status", "by__username")
    assert list(acts)[::-1] == [
        ("made", None, program.user.username),
        (f"POST /api/v1/runs/{run.pk}/stop", 200, program.user.username),
    ]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("scope", ApiScope)
def test_a_token_acts_with_no_more_than_its_scope_and_its_users_role(role, scope):
    roles = {ApiScope.READ: Role.VIEWER, ApiScope.OPERATE: Role.OPERATOR, ApiScope.ADMIN: Role.ADMIN}
    user = make_user(role)
    token = api_tokens.make(user, "x", scope, days=7)[0]
    acting = api_tokens.acting(token)
    assert acting.role == min(role, roles[scope], key=list(Role).index)
    assert (acting.pk, token.user.role) == (user.pk, role)


def test_a_user_has_a_bounded_number_of_tokens(monkeypatch):
    monkeypatch.setattr(api_tokens, "MAX_PER_USER", 1)
    program = Program()
    answer = signed_in(user=program.user).post("/settings/tokens/", ASKED)
    assert answer.status_code == 422
    assert "Revoke one first" in answer.content.decode()


def test_the_record_of_a_token_keeps_the_newest(monkeypatch):
    monkeypatch.setattr(api_tokens, "MAX_ACTS", 3)
    token = Program().token
    for number in range(8):
        api_tokens.note(token, f"POST {number}", status=200, address="")
    assert [act.what for act in token.acts.all()] == ["POST 7", "POST 6", "POST 5", "made"]
