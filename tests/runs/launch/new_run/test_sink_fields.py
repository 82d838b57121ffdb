"""Where a run's figures are also sent, on the New run page."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from controlplane.platform.accounts import vault
from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.controlplane.people import operator
from tests.controlplane.platform.accounts.secret_rows import KEY, an_endpoint
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host, sent
from workers.contract.run.sinks import SECRET_PREFIX, SinkSpec

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def test_sinks_are_frozen_and_cloned_and_their_key_comes_with_the_claim(client):
    an_endpoint("WB")
    chosen = {"send_wandb": "on", "send_tensorboard": "on", "send_wandb_secret": "WB", "send_project": "sums"}
    answer = client.post("/runs/new/", sent(**chosen))
    assert answer.status_code == 302, dict(answer.context["form"].errors)
    run = Run.objects.get()
    asked = (SinkSpec("tensorboard", "sums"), SinkSpec("wandb", "sums", secret="WB"))
    assert spec_of(run).sinks == asked
    form = LaunchForm(as_sent(client.get(f"/runs/{run.pk}/clone/").context["form"]), schema=SCHEMA)
    form.is_valid()
    assert form.request().sinks == asked
    assert json.loads(vault.for_run(spec_of(run))[f"{SECRET_PREFIX}WB"])["key"] == KEY
    assert "<code>wandb</code>" in client.get(f"/runs/{run.pk}/spec/").content.decode()


def test_endpoints_are_offered_and_one_that_is_gone_stays_until_another_is_chosen(client):
    an_endpoint("WB")
    page = client.post("/runs/new/", sent(send_wandb="on", send_wandb_secret="GONE")).content.decode()
    assert '<option value="WB">' in page
    assert '<option value="GONE" selected>GONE (deleted)</option>' in page


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"send_mlflow": "on"}, "send_mlflow_secret", "needs an endpoint"),
        ({"send_wandb": "on", "send_wandb_secret": "NONE"}, "send_wandb_secret", "There is no endpoint NONE"),
    ],
)
def test_a_sink_without_its_endpoint_is_refused_beside_its_field(client, typed, field, words):
    answer = client.post("/runs/new/", sent(**typed))
    assert answer.status_code == 422
    assert words in " ".join(answer.context["form"].errors[field])
    assert not Run.objects.exists()
