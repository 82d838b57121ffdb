"""Dynamic sampling and prompts by difficulty: on the New run page, in the spec, in preflight, on the run's pages."""

from __future__ import annotations

import pytest
from django.test import Client

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.insight.metrics.chart_catalogue import of_training
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host, sent
from workers.contract.run.prompts import PromptsSpec

pytestmark = pytest.mark.django_db

CHOSEN = {"extra_rounds": "4", "by_difficulty": "on", "least_weight": "0.2"}
SPEC = PromptsSpec(extra_rounds=4, by_difficulty=True, least_weight=0.2)


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def launched(client: Client, **typed: str) -> Run:
    answer = client.post("/runs/new/", sent(**typed))
    assert answer.status_code == 302, dict(answer.context["form"].errors)
    return Run.objects.get()


def test_the_choice_is_frozen_cloned_shown_and_charted(client):
    run = launched(client, **CHOSEN)
    assert spec_of(run).prompts == SPEC
    form = LaunchForm(as_sent(client.get(f"/runs/{run.pk}/clone/").context["form"]), schema=SCHEMA)
    form.is_valid()
    assert form.request().prompts == SPEC
    page = " ".join(client.get(f"/runs/{run.pk}/spec/").content.decode().split())
    assert "up to 4 extra rounds; sampled by difficulty, with a minimum weight of 0.2" in page
    [group] = [group for group in of_training(spec_of(run), ()) if group.title == "Choice of prompts"]
    ids = [chart.id for chart in group.charts]
    assert ids[:4] == ["prompts-replaced", "prompts-extra", "prompts-rounds", "prompts-effective"]
    assert {"prompts-known", "prompts-drawn"} <= set(ids)


def test_a_run_that_says_nothing_chooses_nothing(client):
    run = launched(client)
    assert spec_of(run).prompts == PromptsSpec()
    assert not [group for group in of_training(spec_of(run), ()) if group.title == "Choice of prompts"]
    assert "Choice of prompts" not in client.get(f"/runs/{run.pk}/spec/").content.decode()


def test_a_learnability_check_takes_the_prompts_as_they_come(client):
    client.post("/runs/new/learnability", sent(**CHOSEN))
    assert spec_of(Run.objects.get()).prompts == PromptsSpec()
