"""The secrets page: for admins, a key goes in and never comes out again."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from controlplane.catalogue.rewards import saving
from controlplane.platform import sealing
from controlplane.platform.accounts import vault
from controlplane.platform.accounts.models import Secret
from controlplane.platform.accounts.vault import endpoint_for_trial as endpoint
from tests.controlplane.people import admin
from tests.controlplane.platform.accounts.secret_rows import (
    HUB_KEY,
    KEY,
    a_hub_token,
    an_endpoint,
    asks_reward,
)
from tests.runs.builders import a_run
from workers.rewards.tools import Unavailable

pytestmark = pytest.mark.django_db


def sent(**changes: str) -> dict[str, str]:
    start = {"name": "JUDGE", "kind": "endpoint", "address": "https://judge.example/v1", "key": KEY}
    return {name: value for name, value in {**start, **changes}.items() if value is not None}


def errors_of(answer: Any) -> dict[str, str]:
    return {name: " ".join(words) for name, words in answer.context["form"].errors.items()}


def changed(secret: Secret, **values: str) -> Any:
    page = sent(name=secret.name, kind=secret.kind, address=secret.address, key="")
    return admin().post(f"/settings/secrets/{secret.pk}/", {**page, **values})


# --- kept -------------------------------------------------------------------------------------------------------


def test_a_key_is_kept_sealed_and_in_no_row_as_it_is() -> None:
    assert admin().post("/settings/secrets/", sent()).status_code == 302
    secret = Secret.objects.get()
    assert (secret.name, secret.address, secret.key(), secret.by.role) == (
        "JUDGE", "https://judge.example/v1", KEY, "admin",
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM accounts_secret")
        assert KEY not in str(cursor.fetchall())


def test_no_page_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    secret, token, client = an_endpoint(), a_hub_token(), admin()
    with caplog.at_level(logging.DEBUG):
        pages = [client.get("/settings/secrets/"), client.get("/settings/", follow=True)]
        pages += [client.get(f"/settings/secrets/{row.pk}/") for row in (secret, token)]
        pages.append(client.post("/settings/secrets/", sent(name="small letters")))
        pages.append(client.post(f"/settings/secrets/{secret.pk}/", sent(address="nonsense")))
    assert [page.status_code for page in pages] == [200, 200, 200, 200, 422, 422]
    for text in [*(page.content.decode() for page in pages), caplog.text]:
        assert KEY not in text
        assert HUB_KEY not in text
        assert secret.sealed not in text


def test_a_page_with_a_form_of_keys_is_kept_by_no_browser() -> None:
    assert "no-store" in admin().get("/settings/secrets/")["Cache-Control"]


@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"name": "judge"}, "name", "Capital letters"),
        ({"name": "A" * 41}, "name", "at most 40"),
        ({"name": "A\n"}, "name", ""),
        ({"name": ""}, "name", "Enter a name."),
        ({"name": "judge"}, "key", "Enter the key again"),
        ({"name": "HF_TOKEN"}, "name", "model hub's token"),
        ({"name": "OTHER", "kind": "hub"}, "name", "called HF_TOKEN"),
        ({"name": "HF_TOKEN", "kind": "hub", "key": ""}, "key", "Enter the token"),
        ({"address": ""}, "address", "Enter the server's address."),
        ({"address": "http://judge.example/v1"}, "address", "require https"),
        ({"address": "file:///etc/passwd"}, "address", "https://"),
        ({"address": "https://me:pass@judge.example/"}, "address", "name or password"),
        ({"address": "https://judge.example/v1?to=x"}, "address", "question mark"),
        ({"address": "https://jüdge.example/v1"}, "address", "xn--"),
        ({"key": "two words"}, "key", "without spaces"),
        ({"key": "line\r\nX-More: 1"}, "key", "without spaces"),
        ({"key": "x" * 5000}, "key", "at most"),
    ],
)
def test_what_is_no_secret_is_refused_beside_its_field(wrong: dict[str, str], field: str, words: str) -> None:
    answer = admin().post("/settings/secrets/", sent(**wrong))
    if field == "name" and not words:  # a form's text has no line breaks at its ends
        assert Secret.objects.get().name == "A"
        return
    assert answer.status_code == 422
    assert words in errors_of(answer)[field]
    assert not Secret.objects.exists()


@pytest.mark.parametrize(
    ("kind", "address", "key", "name"),
    [("hub", "", HUB_KEY, "HF_TOKEN"), ("store", "https://s3.example.com/b?region=eu", "ID:SECRET", "ARTIFACT_STORE")],
)
def test_what_there_is_once_needs_no_name(kind: str, address: str, key: str, name: str) -> None:
    admin().post("/settings/secrets/", sent(name="", kind=kind, address=address, key=key))
    assert [(row.name, row.key()) for row in Secret.objects.all()] == [(name, key)]


def test_a_name_is_used_once() -> None:
    an_endpoint()
    assert "secret with this name already exists" in errors_of(admin().post("/settings/secrets/", sent()))["name"]


@pytest.mark.parametrize("address", ["http://10.1.2.3:8000/v1", "http://localhost:8000/v1", "https://[fd00::5]/v1"])
def test_a_private_address_is_taken_as_entered(address: str) -> None:
    admin().post("/settings/secrets/", sent(address=address))
    secret = Secret.objects.get()
    assert (secret.address, secret.private_too) == (address, True)


# --- changed ----------------------------------------------------------------------------------------------------


def test_a_new_key_takes_the_place_of_the_old_one_and_nothing_else_changes() -> None:
    secret = an_endpoint(updated_at=timezone.now() - timedelta(days=9))
    assert changed(secret, key="sk-new").status_code == 302
    after = Secret.objects.get()
    assert (after.key(), after.address) == ("sk-new", secret.address)
    assert after.updated_at > secret.updated_at


def test_an_empty_key_keeps_the_one_there_is_also_under_another_name() -> None:
    secret = an_endpoint()
    assert changed(secret, name="JUDGE_2").status_code == 302
    after = Secret.objects.get()
    assert (after.name, after.key(), after.updated_at) == ("JUDGE_2", KEY, secret.updated_at)


def test_another_address_takes_the_key_anew_so_that_none_is_sent_elsewhere() -> None:
    secret = an_endpoint()
    answer = changed(secret, address="https://elsewhere.example/v1")
    assert "Enter the key again" in errors_of(answer)["key"]
    assert Secret.objects.get().address == "https://judge.example/v1"
    assert changed(secret, address="https://elsewhere.example/v1", key="sk-new").status_code == 302
    assert Secret.objects.get().key() == "sk-new"


def test_an_address_that_was_written_into_the_row_gets_no_key() -> None:
    an_endpoint()
    Secret.objects.update(address="https://elsewhere.example/v1")
    with pytest.raises(sealing.CannotOpen, match="another address"):
        Secret.objects.get().key()


def test_an_endpoint_without_a_key_can_move() -> None:
    secret = an_endpoint(key="")
    assert changed(secret, address="http://127.0.0.1:8000/v1").status_code == 302
    assert Secret.objects.get().key() == ""


def test_a_deleted_one_is_gone() -> None:
    assert admin().post(f"/settings/secrets/{an_endpoint().pk}/delete/").status_code == 302
    assert not Secret.objects.exists()


# --- the list ---------------------------------------------------------------------------------------------------


def test_the_list_says_who_uses_a_secret_and_what_its_end_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    an_endpoint()
    an_endpoint("UNUSED")
    components = asks_reward(monkeypatch)
    rewards = saving.make("asks a judge", components)
    run = a_run("uses it", reward_version=rewards)
    page = admin().get("/settings/secrets/").content.decode()
    assert "asks a judge" in page
    assert f'href="/runs/{run.pk}/"' in page
    assert "asks a judge can’t be used for launches" in page or "asks a judge can&#x27;t be used for launches" in page
    assert "uses it, in the queue, will fail to start." in page
    assert "nobody" in page


def test_the_list_says_to_whom_it_was_last_given(monkeypatch: pytest.MonkeyPatch) -> None:
    an_endpoint()
    run = a_run("took it")
    vault.note_use(["JUDGE"], run=run.pk)
    assert "took it" in admin().get("/settings/secrets/").content.decode()


def test_a_key_of_another_installation_is_told_with_what_to_do(settings: Settings) -> None:
    an_endpoint()
    settings.SECRET_KEY = "another" * 8
    page = admin().get("/settings/secrets/")
    assert page.status_code == 200
    assert "Enter the key again" in page.content.decode()
    assert "another installation's secret key" in vault.problem("JUDGE")
    assert "Settings, Secrets" in vault.problem("JUDGE")
    assert changed(Secret.objects.get(), key="sk-new").status_code == 302
    assert vault.problem("JUDGE") == ""


# --- an endpoint for a try --------------------------------------------------------------------------------------


def test_a_try_gets_an_endpoint_by_its_name() -> None:
    an_endpoint()
    found = endpoint("JUDGE")
    assert (found.address, found.key) == ("https://judge.example/v1", KEY)
    assert KEY not in repr(found)
    assert Secret.objects.get().used_at is not None


@pytest.mark.parametrize("name", ["NONE", "HF_TOKEN", ""])
def test_what_is_no_endpoint_is_told_so(name: str) -> None:
    a_hub_token()
    with pytest.raises(Unavailable, match="no endpoint"):
        endpoint(name)


@pytest.mark.parametrize(
    ("private_too", "ip", "goes"),
    [
        (False, "8.8.8.8", True),
        (False, "10.0.0.1", False),
        (False, "127.0.0.1", False),
        (True, "10.0.0.1", True),
        (True, "169.254.169.254", False),
    ],
)
def test_a_try_connects_only_where_the_secret_may_lead(private_too: bool, ip: str, goes: bool) -> None:
    an_endpoint(private_too=private_too)
    refusal = endpoint("JUDGE").refusal
    assert refusal is not None
    assert (refusal(ip) is None) == goes


def test_a_try_sends_no_key_unencrypted_to_a_public_server_whatever_a_private_name_leads_to() -> None:
    an_endpoint(address="http://judge.internal/v1", private_too=True)
    refusal = endpoint("JUDGE").refusal
    assert refusal is not None
    assert refusal("10.0.0.1") is None
    assert "unencrypted" in str(refusal("8.8.8.8"))
