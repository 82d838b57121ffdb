"""Asking a host about a model."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware import host_commands, inspections
from controlplane.catalogue.hardware.models import ModelInspection
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_host
from workers.contract.wire.names import Task

pytestmark = pytest.mark.django_db


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Task, list[Any]]]:
    """What would have gone to hosts."""
    sent: list[tuple[str, Task, list[Any]]] = []
    monkeypatch.setattr(host_commands, "send", lambda host, task, args: sent.append((host, task, list(args))))
    return sent


def test_a_question_goes_to_the_host(questions):
    asked = inspections.request_inspection(a_host(), "/models/tiny")
    assert questions == [("box", Task.INSPECT_MODEL, [asked.pk, "/models/tiny", ""])]


def test_an_answer_about_one_revision_says_nothing_of_another(questions):
    host = a_host()
    ModelInspection.objects.create(host=host, model="org/m", answered_at=timezone.now(), answer={"ok": True})
    asked = inspections.request_inspection(host, "org/m", revision="v1")
    assert questions == [("box", Task.INSPECT_MODEL, [asked.pk, "org/m", "v1"])]
    assert inspections.latest_inspection(host, "org/m").answer == {"ok": True}


def test_an_open_question_is_not_asked_twice(questions):
    host = a_host()
    assert inspections.request_inspection(host, "m") == inspections.request_inspection(host, "m")
    assert len(questions) == 1


def test_a_recent_answer_is_used_again(questions):
    host = a_host()
    ModelInspection.objects.create(host=host, model="m", answered_at=timezone.now(), answer={"ok": True})
    assert inspections.request_inspection(host, "m").answer == {"ok": True}
    assert questions == []


@pytest.mark.parametrize("column", ["asked_at", "answered_at"])
def test_an_old_question_or_answer_is_asked_again(questions, column):
    host = a_host()
    old = inspections.request_inspection(host, "m")
    ModelInspection.objects.filter(pk=old.pk).update(**{column: timezone.now() - timedelta(hours=1)})
    assert inspections.request_inspection(host, "m") != old


def test_without_a_broker_nothing_is_left_open(monkeypatch):
    def down(*_: Any, **__: Any) -> None:
        raise host_commands.BrokerDown

    monkeypatch.setattr(host_commands, "send", down)
    with pytest.raises(inspections.HostAway):
        inspections.request_inspection(a_host(), "m")
    assert not ModelInspection.objects.exists()


def test_the_form_asks_and_then_shows_the_answer(questions):
    host, client = a_host(), operator()
    assert "Asking box" in client.post("/runs/new/model", {"model": "/models/tiny"}).content.decode()
    asked = ModelInspection.objects.get()
    path = f"/runs/new/model/{asked.pk}"
    assert "HX-Trigger" not in client.get(path)
    answer = {"ok": True, "architecture": "Qwen2ForCausalLM", "parameters": 1_010_000, "context_length": 512}
    ModelInspection.objects.filter(host=host).update(answered_at=timezone.now(), answer=answer)
    shown = viewer().get(path)
    assert "Qwen2ForCausalLM" in shown.content.decode()
    assert shown["HX-Trigger"] == "inspected"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            {"ok": True, "hub": True, "bytes": 2_910_000_000, "free_bytes": 10**11},
            ["2.9\N{NO-BREAK SPACE}GB", "free on"],
        ),
        (
            {"ok": True, "hub": True, "unreachable": True, "why": "no route"},
            ["could not reach the hub", "no route", "Ask again"],
        ),
        ({"ok": False, "gated": True, "error": "It is gated."}, ["It is gated.", "Ask again"]),
        ({"ok": True, "hub": True}, ["download the model when the run starts"]),
    ],
)
def test_the_form_shows_what_the_hub_told_the_host(questions, answer, shown):
    asked = inspections.request_inspection(a_host(), "Org/Model")
    ModelInspection.objects.update(answered_at=timezone.now(), answer=answer)
    page = viewer().get(f"/runs/new/model/{asked.pk}").content.decode()
    assert [words for words in shown if words not in page] == []


def test_asking_again_doesnt_take_the_answer_that_is_there(questions):
    client = operator()
    inspections.request_inspection(a_host(), "m")
    client.post("/runs/new/model", {"model": "m", "again": "1"})
    assert len(questions) == 1
    ModelInspection.objects.update(answered_at=timezone.now(), answer={"ok": False, "error": "no"})
    client.post("/runs/new/model", {"model": "m"})
    assert len(questions) == 1
    client.post("/runs/new/model", {"model": "m", "again": "1"})
    assert len(questions) == 2


def test_the_form_says_why_there_is_no_answer(questions, monkeypatch):
    client = operator()
    assert "No host is reachable" in client.post("/runs/new/model", {"model": "m"}).content.decode()
    assert "Enter a model" in client.post("/runs/new/model", {"model": ""}).content.decode()
    asked = inspections.request_inspection(a_host(), "m")
    ModelInspection.objects.update(asked_at=timezone.now() - timedelta(hours=1))
    assert "hasn’t responded" in client.get(f"/runs/new/model/{asked.pk}").content.decode()


def test_what_a_host_says_is_shown_as_text(questions):
    asked = inspections.request_inspection(a_host(), "m")
    answer = {"ok": False, "error": "<script>alert(1)</script>"}
    ModelInspection.objects.update(answered_at=timezone.now(), answer=answer)
    assert b"<script>alert" not in operator().get(f"/runs/new/model/{asked.pk}").content
