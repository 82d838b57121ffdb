"""Limits and early-stop rules on the New run page."""

from __future__ import annotations

import pytest
from django.test import Client

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host, sent
from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def test_limits_and_rules_are_frozen_and_cloned(client):
    rules = {"stop_metric": "reward", "stop_steps": "50", "stop_higher": "false", "stop_gain": "0.01"}
    bound = {"bound_metric": "entropy", "bound_above": "false", "bound_value": "0.1", "bound_steps": "5"}
    answer = client.post("/runs/new/", sent(limit_hours="2.5", limit_tokens="1000", **rules, **bound))
    assert answer.status_code == 302, dict(answer.context["form"].errors)
    run = Run.objects.get()
    asked = LimitsSpec(2.5, 1000, None, NoBetterSpec("reward", 50, False, 0.01), BeyondSpec("entropy", 0.1, 5, False))
    assert spec_of(run).limits == asked
    page = client.get(f"/runs/{run.pk}/clone/")
    assert LaunchForm(as_sent(page.context["form"])).request().limits == LimitsSpec()  # not validated: nothing is read
    form = LaunchForm(as_sent(page.context["form"]), schema=SCHEMA)
    form.is_valid()
    assert form.request().limits == asked


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"limit_hours": "0"}, "limit_hours", "At least 0.01"),
        ({"limit_tokens": "-5"}, "limit_tokens", "At least 1"),
        ({"limit_money": "abc"}, "limit_money", "Enter a number"),
        (
            {"stop_metric": "reward"},
            "stop_steps",
            "Enter the number of steps without improvement",
        ),
        ({"stop_steps": "5"}, "stop_metric", "Enter the metric that has to improve."),
        ({"bound_metric": "kl"}, "bound_value", "Enter the bound."),
        ({"bound_value": "1"}, "bound_metric", "Enter the metric that must not cross the bound."),
        ({"hang_after": "1"}, "hang_after", "At least 2"),
    ],
)
def test_a_limit_that_can_not_be_is_refused_beside_its_field(client, typed, field, words):
    answer = client.post("/runs/new/", sent(**typed))
    assert answer.status_code == 422
    assert words in " ".join(answer.context["form"].errors[field])
    assert not Run.objects.exists()
    for name, value in typed.items():
        assert f'value="{value}"' in answer.content.decode(), f"{name} lost what was typed"
