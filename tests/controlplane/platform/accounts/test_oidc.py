"""Sign-in at an OpenID provider: roles from groups, and who stays out."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

from controlplane.platform import oidc
from controlplane.platform.accounts.models import Role, User
from controlplane.platform.environment import EnvironmentUnusable
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.controlplane.people import make_user
from tests.fakes import fake_oidc
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db


PROGRAM = shutil.which("oidc-provider-mock", path=f"{os.environ.get('PATH', '')}:{ROOT / '.venv-oidc' / 'bin'}")


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Any:
    """Read the settings anew from the environment."""
    secret = tmp_path / "secret"
    secret.write_text(fake_oidc.SECRET + "\n")

    def of(issuer: str, **more: str) -> None:
        usual = {"CLIENT_ID": fake_oidc.CLIENT, "SECRET_FILE": str(secret), "NAME": "Example ID"}
        for name, value in {"ISSUER": issuer, **usual, "ADMINS": "ml-leads", "OPERATORS": "ml, gpu", **more}.items():
            monkeypatch.setenv(f"CONTROLPLANE_OIDC_{name}", value)
        settings.OIDC = oidc.from_environment()
        settings.SOCIALACCOUNT_PROVIDERS = settings.OIDC.for_allauth()

    return of


@pytest.fixture
def provider(set_up: Any) -> Iterator[fake_oidc.Provider]:
    with fake_oidc.running() as provider:
        set_up(provider.issuer)
        yield provider


def sign_in(client: Client | None = None, *, wanted: str = "") -> Any:
    """The answer to the provider's callback."""
    client = client or Client()
    to_provider = client.get("/sign-in/oidc/", {"next": wanted})
    if to_provider.status_code != 302:
        return to_provider
    back = httpx.get(to_provider["Location"])
    return client.get(back.headers["Location"].removeprefix("http://testserver"))


@pytest.mark.processes
@pytest.mark.skipif(
    PROGRAM is None, reason="no provider: `uv venv .venv-oidc && uv pip install -p .venv-oidc oidc-provider-mock`"
)
def test_a_provider_that_others_have_written_signs_people_in(set_up: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    person = {"sub": "s1", "preferred_username": "anna", "email": "anna@example.test", "groups": ["gpu"]}
    argv = [str(PROGRAM), "--port", str(port), "--user-claims", json.dumps(person)]
    with open(tmp_path / "log", "wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        wait_until(lambda: "running on" in (tmp_path / "log").read_text(), (tmp_path / "log").read_text)
        set_up(f"http://127.0.0.1:{port}")
        client = Client()
        form = client.get("/sign-in/oidc/?next=/datasets/")["Location"]
        back = httpx.post(form, data={"sub": "s1"}).headers["Location"]
        answer = client.get(back.removeprefix("http://testserver"))
        process.terminate()
    assert (answer.status_code, answer["Location"]) == (302, "/datasets/")
    assert User.objects.values_list("username", "role", "email").get() == ("anna", "operator", "anna@example.test")


def test_the_sign_in_page_offers_it_beside_local_accounts(provider: fake_oidc.Provider) -> None:
    page = Client().get("/sign-in/?next=/datasets/").content.decode()
    assert "Sign in with Example ID" in page
    assert 'href="/sign-in/oidc/?next=/datasets/"' in page
    assert 'name="password"' in page


def test_without_settings_there_is_none() -> None:
    assert "oidc" not in Client().get("/sign-in/").content.decode()
    assert Client().get("/sign-in/oidc/").status_code == 404
    assert Client().get("/sign-in/oidc/callback/").status_code == 404


@pytest.mark.parametrize(
    ("groups", "role"),
    [(["gpu"], "operator"), (["ml", "ml-leads"], "admin"), (["sales"], "viewer"), (None, "viewer"), ("ml", "operator")],
)
def test_groups_decide_the_role(provider: fake_oidc.Provider, groups: Any, role: str) -> None:
    provider.person["groups"] = groups
    client = Client()
    answer = sign_in(client, wanted="/datasets/")
    assert (answer.status_code, answer["Location"]) == (302, "/datasets/")
    user = User.objects.get(username="anna")
    assert (user.role, user.email, user.has_usable_password()) == (role, "anna@example.test", False)
    assert client.get("/datasets/").status_code == 200


def test_a_lost_group_costs_the_role_at_the_next_sign_in(provider: fake_oidc.Provider) -> None:
    provider.person["groups"] = ["ml-leads"]
    sign_in()
    provider.person["groups"] = []
    sign_in()
    assert User.objects.get().role == Role.VIEWER


def test_others_may_be_refused(provider: fake_oidc.Provider, set_up: Any) -> None:
    set_up(provider.issuer, OTHERS="refuse")
    client = Client()
    answer = sign_in(client)
    assert (answer.status_code, User.objects.count()) == (403, 0)
    assert "None of your groups may sign in here." in answer.content.decode()
    assert client.get("/runs/").status_code == 302


def test_a_disabled_user_stays_out(provider: fake_oidc.Provider) -> None:
    sign_in()
    User.objects.update(is_active=False)
    provider.person["groups"] = ["ml-leads"]
    client = Client()
    assert "disabled" in sign_in(client).content.decode()
    assert User.objects.get().role == Role.VIEWER
    assert client.get("/runs/").status_code == 302


def test_a_local_account_of_the_same_name_stays_its_owners(provider: fake_oidc.Provider) -> None:
    local = make_user(Role.ADMIN, name="anna")
    User.objects.filter(pk=local.pk).update(email="anna@example.test")
    sign_in()
    assert set(User.objects.values_list("username", "role")) == {("anna", "admin"), ("anna-2", "viewer")}


def test_their_account_gets_no_password_here(provider: fake_oidc.Provider) -> None:
    client = Client()
    sign_in(client)
    answer = client.post("/password/", {"new": "a long enough one", "again": "a long enough one"})
    assert answer.status_code == 403
    assert "You sign in with Example ID" in answer.content.decode()


def test_only_a_page_of_this_site_follows(provider: fake_oidc.Provider) -> None:
    assert sign_in(wanted="https://evil.example/")["Location"] == "/"


@pytest.mark.parametrize(
    "claims", [{"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1}, {"sub": "another"}], ids=str
)
def test_a_token_for_something_else_signs_nobody_in(provider: fake_oidc.Provider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    assert sign_in().status_code == 403
    assert not User.objects.exists()


def test_a_token_that_another_key_signed_signs_nobody_in(provider: fake_oidc.Provider) -> None:
    provider.signs_with = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert sign_in().status_code == 403
    assert not User.objects.exists()


def test_a_provider_with_one_key_need_not_name_it(provider: fake_oidc.Provider) -> None:
    provider.kid = {}
    assert sign_in()["Location"] == "/"
    provider.more_keys = 1
    assert sign_in().status_code == 403


def test_an_answer_that_nobody_asked_for_is_refused(provider: fake_oidc.Provider) -> None:
    for query in ({}, {"code": "x", "state": "y"}, {"error": "server_error"}):
        assert Client().get("/sign-in/oidc/callback/", query).status_code == 403


def test_whoever_declines_is_back_at_the_sign_in(provider: fake_oidc.Provider) -> None:
    provider.says_no = True
    assert sign_in()["Location"] == "/sign-in/"


def test_a_provider_that_is_another_or_away_is_said(provider: fake_oidc.Provider, set_up: Any) -> None:
    provider.named_issuer = "https://evil.example"
    assert sign_in().status_code in (403, 502)
    set_up("http://127.0.0.1:9")
    answer = sign_in()
    assert answer.status_code == 502
    assert "Example ID can't be reached" in answer.content.decode().replace("&#x27;", "'")


def test_settings_that_can_not_be_used_are_named(set_up: Any) -> None:
    with pytest.raises(EnvironmentUnusable, match="must begin with https://"):
        set_up("http://id.example.test")
    with pytest.raises(EnvironmentUnusable, match="CONTROLPLANE_OIDC_CLIENT_ID"):
        set_up("https://id.example.test", CLIENT_ID="")
    with pytest.raises(EnvironmentUnusable, match="CONTROLPLANE_OIDC_OTHERS must be one of"):
        set_up("https://id.example.test", OTHERS="nobody")
