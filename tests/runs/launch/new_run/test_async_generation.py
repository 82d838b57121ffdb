"""Generation one step ahead: on the New run page, in the spec, on the run's pages."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.catalogue.hardware.models import HardwareProfile
from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.insight.metrics.chart_catalogue import of_rollout
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host, sent
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec
from workers.contract.run.overlapping import MODE, USUAL_MODE
from workers.contract.wire.documents import to_dict

pytestmark = pytest.mark.django_db
FIELD = {"name": MODE, "type": "str", "default": "sequence_mask", "group": "vLLM"}
OF_TRL = {**SCHEMA, "fields": [*SCHEMA["fields"], FIELD]}


@pytest.fixture
def client() -> Client:
    a_ready_host(trainer_schema=OF_TRL)
    return operator()


def servers() -> str:
    """The key of a profile with a server that somebody else runs, so that a host without GPUs may take it."""
    server = ServerSpec(attached=("http://127.0.0.1:8000",), weight_sync="lora")
    spec = HardwareSpec("", rollout=Rollout.SERVER, cpu_slots=1, server=server)
    return str(HardwareProfile.objects.create(name="attached", spec=to_dict(spec)).pk)


def launched(client: Client, **typed: str) -> Run:
    answer = client.post("/runs/new/", sent(profile=servers(), use_lora="on", **typed))
    assert answer.status_code == 302, [answer.context["form"].errors, answer.context["findings"]]
    return Run.objects.get()


def charts(run: Run) -> set[str]:
    spec = spec_of(run)
    return {chart.id for group in of_rollout(spec) for chart in group.charts}


def test_it_is_frozen_with_its_correction_cloned_shown_and_charted(client):
    run = launched(client, ahead="on")
    assert spec_of(run).ahead
    assert spec_of(run).grpo[MODE] == USUAL_MODE
    clone = client.get(f"/runs/{run.pk}/clone/").context["form"]
    form = LaunchForm(as_sent(clone), schema=OF_TRL)
    form.is_valid()
    assert form.request().ahead
    assert MODE not in form.request().grpo, "without the setting, the clone is left to TRL again"
    page = " ".join(client.get(f"/runs/{run.pk}/spec/").content.decode().split())
    assert "one step ahead, corrected by <code>token_truncate</code>" in page
    assert {"sampling-staleness", "sampling-ahead", "sampling-truncated"} <= charts(run)


def test_a_run_that_says_nothing_generates_in_turns(client):
    run = launched(client)
    assert not spec_of(run).ahead
    assert MODE not in spec_of(run).grpo
    assert not {"sampling-staleness", "sampling-ahead", "sampling-truncated"} & charts(run)
    assert "one step ahead" not in client.get(f"/runs/{run.pk}/spec/").content.decode()


def test_a_learnability_check_has_no_next_batch(client):
    client.post("/runs/new/learnability", sent(profile=servers(), use_lora="on", ahead="on"))
    run = Run.objects.get()
    assert not spec_of(run).ahead
    assert MODE not in spec_of(run).grpo
