"""What hosts send: announcements and answers about models."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from controlplane.catalogue.hardware.models import Host, ModelInspection
from tests.controlplane.people import operator
from tests.host_tokens import host_token

pytestmark = pytest.mark.django_db

INVENTORY = {"boot_id": "b1", "gpus": [], "cpu_slots": 2, "trainer": "ready", "versions": {"trl": "1.16.0"}}


def post(path: str, document: Any, *, token: str | None = None, of: str = "box", **headers: str):
    token = host_token(of) if token is None else token
    body = document if isinstance(document, bytes) else json.dumps(document)
    headers = {"Authorization": f"Bearer {token}"} | headers
    return Client(enforce_csrf_checks=True).post(path, body, content_type="application/json", headers=headers)


def announce(**document: Any):
    return post("/api/hosts/announce", {"name": "box", "inventory": INVENTORY, "trainer_schema": None} | document)


def an_inspection(host: str = "box") -> ModelInspection:
    return ModelInspection.objects.create(host=Host.objects.get_or_create(name=host)[0], model="/models/tiny")


def test_a_host_that_leaves_says_how_with_its_token_and_is_known_no_more(settings: Settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # its user there is deleted later
    announce()
    assert post("/api/hosts/leave", {"name": "box", "how": "idle"}, token="wrong").status_code == 403
    assert post("/api/hosts/leave", {"name": "box", "how": "on foot"}).status_code == 400
    assert post("/api/hosts/leave", {"name": "box", "how": "stopping"}).status_code == 200
    assert Host.objects.get().draining
    assert post("/api/hosts/leave", {"name": "box", "how": "stopped"}).status_code == 200
    assert not Host.objects.exists()
    assert announce().status_code == 403


def test_an_announcement_makes_the_host_known():
    assert announce().json() == {"ok": True, "want_schema": True, "watched": False}
    host = Host.objects.get()
    assert (host.name, host.inventory) == ("box", INVENTORY)
    assert host.announced_at is not None


def test_the_next_one_renews_it_and_leaves_what_operators_set():
    announce()
    Host.objects.update(draining=True, announced_at=None)
    announce(inventory=INVENTORY | {"cpu_slots": 4})
    host = Host.objects.get()
    assert (host.inventory["cpu_slots"], host.draining) == (4, True)
    assert host.announced_at is not None


def test_a_second_machine_with_the_same_token_is_refused_and_the_page_says_so():
    announce()
    answer = announce(inventory=INVENTORY | {"boot_id": "b2", "cpu_slots": 64})
    assert (answer.status_code, answer.json()["error"]["what"]) == (
        409,
        "Another machine announces itself as box, with the same token.",
    )
    assert Host.objects.get().inventory == INVENTORY
    assert announce().status_code == 200  # the first one goes on
    assert "two machines" in operator().get("/hardware/").content.decode()


def test_a_machine_that_was_restarted_is_let_in_once_its_earlier_boot_is_silent():
    announce()
    Host.objects.update(announced_at=timezone.now() - timedelta(seconds=60))
    assert announce(inventory=INVENTORY | {"boot_id": "b2"}).status_code == 200
    assert Host.objects.get().inventory["boot_id"] == "b2"


def test_a_schema_is_kept_until_another_comes():
    announce(trainer_schema={"trl": "1.16.0", "fields": []})
    assert announce().json()["want_schema"] is False
    assert Host.objects.get().trainer_schema["trl"] == "1.16.0"


def test_a_schema_of_another_trl_is_asked_for_again():
    announce(trainer_schema={"trl": "1.15.0", "fields": []})
    assert announce().json()["want_schema"] is True


def test_a_host_without_a_trainer_is_not_asked_for_a_schema():
    assert announce(inventory={"trainer": "missing"}).json()["want_schema"] is False


@pytest.mark.parametrize("token", ["", "wrong", "ünïcode"])
def test_a_wrong_token_changes_nothing(token):
    answer = post("/api/hosts/announce", {"name": "box", "inventory": {}}, token=token)
    assert answer.status_code in (401, 403)
    assert set(answer.json()["error"]) == {"what", "where", "fix"}
    assert not Host.objects.exists()


def test_one_host_can_not_speak_for_another():
    answer = post("/api/hosts/announce", {"name": "box", "inventory": {}}, of="other")
    assert answer.status_code == 403


def test_no_token_at_all_is_refused():
    assert Client().post("/api/hosts/announce", "{}", content_type="application/json").status_code == 401


@pytest.mark.parametrize("path", ["/api/hosts/announce", "/api/inspections/1"])
def test_only_post_is_allowed(path):
    answer = Client().get(path)
    assert (answer.status_code, answer["Allow"]) == (405, "POST")


def test_a_body_that_is_no_object_is_said(subtests):
    for body in [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000]:
        with subtests.test(body=body):
            answer = post("/api/hosts/announce", body)
            assert answer.status_code == 400
            assert answer.json()["error"]["where"] == "body"


def test_a_name_that_will_not_do_is_refused(subtests):
    for name in [None, 7, "", "../x", "a b", "x" * 65, "-x"]:
        with subtests.test(name=name):
            assert announce(name=name).json()["error"]["where"] == "name"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("inventory", []),
        ("inventory", None),
        ("trainer_schema", []),
        ("trainer_schema", "x"),
        ("trainer_schema", {}),
        ("trainer_schema", {"fields": 3}),
        ("trainer_schema", {"fields": [{}]}),
        ("trainer_schema", {"fields": [{"name": "a", "choices": 5}]}),
        ("trainer_schema", {"fields": [], "defaults": []}),
    ],
)
def test_parts_of_the_wrong_kind_are_refused(part, value):
    assert announce(**{part: value}).json()["error"]["where"] == part


def test_an_answer_about_a_model_is_kept():
    asked = an_inspection()
    assert post(f"/api/inspections/{asked.pk}", {"answer": {"ok": True}}).status_code == 200
    asked.refresh_from_db()
    assert asked.answer == {"ok": True}


def test_a_second_answer_changes_nothing():
    asked = an_inspection()
    post(f"/api/inspections/{asked.pk}", {"answer": {"ok": True}})
    assert post(f"/api/inspections/{asked.pk}", {"answer": {"ok": False}}).status_code == 200
    asked.refresh_from_db()
    assert asked.answer == {"ok": True}


def test_another_host_can_not_answer():
    asked = an_inspection("other")
    assert post(f"/api/inspections/{asked.pk}", {"answer": {}}, of="box").status_code == 403


def test_a_question_that_was_never_asked_looks_the_same():
    asked = an_inspection("other")
    missing = post("/api/inspections/999999", {"answer": {}})
    foreign = post(f"/api/inspections/{asked.pk}", {"answer": {}})
    assert (missing.status_code, missing.content) == (foreign.status_code, foreign.content)


def test_an_answer_that_is_no_object_is_refused():
    asked = an_inspection()
    assert post(f"/api/inspections/{asked.pk}", {"answer": "yes"}).status_code == 400


def test_a_clock_is_the_servers_own():
    before = timezone.now()
    announce(announced_at="1970-01-01")
    assert Host.objects.get().announced_at >= before
