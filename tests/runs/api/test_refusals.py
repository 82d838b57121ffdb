"""Drafts that can't be launched: preflight names whatever a launch would be refused for, and nothing else."""

from __future__ import annotations

import html
import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from controlplane.catalogue.hardware.models import HardwareProfile
from runs.engine.models import Attempt, Priority
from runs.launch.new_run.fields.table import BY_FIELD
from tests.controlplane.people import operator
from tests.runs.api.clients import Program
from tests.runs.api.test_runs import a_spec
from tests.runs.launch.new_run import launching_page
from tests.runs.launch.new_run.launching_page import a_config, a_ready_host, a_version

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

ODD: tuple[Any, ...] = ("x", "", -1, 0, 1e9, "\0", True, None, "1\n2", "/nowhere/at/all")


def drafts(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Bodies that are wrong, or nearly right: each field with a few odd values, and specs that were altered."""
    chance = random.Random(7)
    for name in chance.sample(sorted(set(BY_FIELD) - {"seeds", "grid"}), 45):  # those two describe several runs
        yield {"spec": spec, "set": {name: chance.choice(ODD)}}
    for path in ("hardware", "data", "model", "grpo", "limits"):
        for altered in ({"surprise": 1}, {"environment": {"A": "b"}}, {"name": 3}, {"trainer_gpus": 8}, {"rows": -1}):
            body = {"spec": {**spec, path: {**(spec.get(path) or {}), **altered}}}
            yield body | ({"accept_notes": True} if chance.random() < 0.4 else {})
    for key, value in {"kind": "x", "priority": "x", "rewards": [], "name": "n" * 200, "eval_rewards": [{}]}.items():
        yield {"spec": {**spec, key: value}}
        yield {"spec": {**spec, key: value}, "accept_notes": True}
    yield {"spec": {**spec, "data": {**spec["data"], "name": "none", "sha256": ""}}, "accept_notes": True}
    yield {"spec": {**spec, "rewards": [{"name": "x", "function": "length"}]}, "accept_notes": True}
    yield from ({}, {"set": {"model": "/models/tiny"}}, {"document": "learning_rate: x\n"}, {"spec": {}})
    yield from ({"spec": spec, "set": {"priority": value}} for value in ("x", "high", 1, 7, ["x"]))
    yield from ({"spec": spec, "set": {"host": value}} for value in ("x", "box", 999))
    yield from ({"spec": spec, "priority": value} for value in ("high", "low"))


def test_a_launch_is_refused_exactly_if_preflight_has_a_stop_that_names_it() -> None:
    spec, program = a_spec(), Program()
    launched = refused = 0
    for body in drafts(spec):
        found = program.post("preflight", body)
        with transaction.atomic():
            answer = program.post("runs", body)
            transaction.set_rollback(True)
        if found.status_code != 200:  # no draft at all
            assert answer.json()["error"] == found.json()["error"]
            continue
        stops = [finding for finding in found.json()["findings"] if finding["grade"] == "stop"]
        assert (answer.status_code == 201, bool(stops)) in ((True, False), (False, True)), (body, answer.json())
        assert found.json()["launchable"] is not bool(stops)
        if stops:
            error = answer.json()["error"]
            assert (error["where"], error["what"]) in [(stop["field"], stop["cause"]) for stop in stops], body
            assert all(stop["cause"] for stop in stops)
        launched, refused = launched + (not stops), refused + bool(stops)
    assert launched > 15
    assert refused > 40


def test_a_priority_in_the_settings_counts_unless_the_request_has_one() -> None:
    spec, program = a_spec(), Program()
    for body, priority in (
        ({"set": {"priority": "high"}}, Priority.HIGH),
        ({"set": {"priority": -1}}, Priority.LOW),
        ({"set": {"priority": "high"}, "priority": "low"}, Priority.LOW),
        ({}, Priority.NORMAL),
    ):
        run = program.post("runs", {"spec": spec, **body}).json()["run"]["id"]
        assert Attempt.objects.get(run=run).priority == priority


def test_a_profile_that_was_altered_since_is_named_with_its_settings() -> None:
    spec = a_spec()
    spec["hardware"]["environment"] = {"NCCL_DEBUG": "INFO"}
    [stop] = [
        each for each in Program().post("preflight", {"spec": spec}).json()["findings"] if each["grade"] == "stop"
    ]
    assert stop["field"] == "hardware"
    assert 'Variables: {"NCCL_DEBUG": "INFO"}' in stop["cause"]


def _altered(profile: HardwareProfile) -> None:
    HardwareProfile.objects.filter(pk=profile.pk).update(spec={**profile.spec, "environment": {"LD_PRELOAD": "x"}})


def _unreadable(profile: HardwareProfile) -> None:
    HardwareProfile.objects.filter(pk=profile.pk).update(spec={"rollout": "a newer one"})


def test_the_page_is_refused_exactly_if_its_panel_says_why(subtests: pytest.Subtests) -> None:
    a_ready_host(), a_version(), a_config()
    for changes, words in (
        ({}, ""),
        ({"num_generations": "1"}, "at least 2 of them"),
        ({"max_steps": "x"}, "Enter a whole number"),
        ({"eval_rows": "90"}, "validation"),
        ({"priority": "x"}, "Select a valid choice"),
        ({"seeds": "2", "grid": "num_generations: 8, 7"}, "num generations 7"),
    ):
        with subtests.test(changes=changes):
            _agrees(launching_page.sent(**changes), words)


def test_a_profile_that_a_launch_cannot_use_is_a_finding_of_the_page(subtests: pytest.Subtests) -> None:
    a_ready_host()
    page = launching_page.sent()
    for harm, words in (
        (_altered, "LD_PRELOAD can't be set"),
        (_unreadable, "This version can't read the profile"),
    ):
        with subtests.test(words=words):
            harm(launching_page.cpu_profile())
            _agrees(page, words)


def _agrees(page: dict[str, Any], words: str) -> None:
    client = operator()
    panel = html.unescape(client.post("/runs/new/check", page).content.decode())
    with transaction.atomic():
        answer = client.post("/runs/new/", page)
        transaction.set_rollback(True)
    assert answer.status_code == (422 if words else 302)
    assert ('data-grade="stop"' in panel) == bool(words)
    assert words in panel
