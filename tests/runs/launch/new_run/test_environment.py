"""A run's environment: chosen on New run, frozen, carried on by clones and links, shown, compared."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.environments import saving
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from runs.engine.models import Run
from runs.engine.scheduling import launching
from runs.engine.spec import spec_of
from runs.insight.comparing.comparison import settings
from runs.launch.new_run import prefill
from runs.launch.new_run.forms import LaunchForm
from tests.controlplane.people import admin, operator
from tests.runs.builders import a_user
from tests.runs.launch.new_run.launching_page import a_ready_host, sent
from tests.runs.launch.new_run.test_launch_form import launched
from workers.contract.run.episodes import GatewaySpec
from workers.contract.wire.documents import ContractError

pytestmark = pytest.mark.django_db

CALCULATOR = {"name": "calculate", "function": "calculator"}


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def an_environment(name: str = "sums with a calculator", **limits: Any) -> EnvironmentVersion:
    return saving.make(name, EnvironmentComposition([CALCULATOR], limits))


def test_an_environment_is_frozen_with_its_limits_and_those_of_the_run(client):
    version = an_environment(turns=3, calls=2)
    run = launched(client, environment=str(version.pk), episode_turns="5", episode_count_outputs="false")
    episodes = spec_of(run).episodes
    assert run.environment_version == version
    assert (episodes.name, episodes.version, [part.name for part in episodes.parts]) == (
        "sums with a calculator", 1, ["calculate"],
    )  # fmt: skip
    assert (episodes.limits.turns, episodes.limits.calls, episodes.limits.count_outputs) == (5, 2, False)


def test_without_an_environment_a_run_is_what_it_was(client):
    run = launched(client)
    assert (run.environment_version, spec_of(run).episodes) == (None, None)


def test_agents_drive_a_run_through_its_endpoint(client):
    run = launched(client, driven_by="atropos", session_s="30", max_token_len="1024")
    assert spec_of(run).episodes.gateway == GatewaySpec("atropos", session_s=30.0, max_token_len=1024)


def test_an_endpoint_for_other_machines_is_an_admins(client):
    choices = {"driven_by": "agents", "open_beyond_loopback": "on"}
    refused = client.post("/runs/new/", sent(**choices))
    assert refused.status_code == 422
    assert "Only an admin may open a run’s endpoint to other machines" in refused.content.decode()
    assert not Run.objects.exists()
    run = launched(admin(), **choices)
    assert spec_of(run).episodes.gateway.open_beyond_loopback


def test_nor_does_an_operator_launch_one_by_another_way(client):
    form = LaunchForm(sent(driven_by="agents", open_beyond_loopback="on"))
    assert form.is_valid()
    with pytest.raises(ContractError, match="Only an admin"):
        launching.submit(form.request(), user=a_user("otto"))


def test_a_clone_has_the_environment_and_only_the_limits_that_were_changed(client):
    version = an_environment(turns=3)
    run = launched(client, environment=str(version.pk), episode_calls="1", turn_advantage_coef="0.5")
    values = prefill.from_run(run, None)
    assert (values["environment"], values["episode_calls"], values["turn_advantage_coef"]) == (version.pk, 1, 0.5)
    assert values["episode_turns"] is None
    page = client.get(f"/runs/{run.pk}/clone/").content.decode()
    assert f'<option value="{version.pk}" selected>' in page


def test_a_clone_says_what_has_become_of_the_environment(client):
    version = an_environment()
    run = launched(client, environment=str(version.pk))
    saving.save(version.environment, EnvironmentComposition([CALCULATOR], {"turns": 2}))
    assert "environment has a newer version" in client.get(f"/runs/{run.pk}/clone/").content.decode()
    version.environment.delete()
    run.refresh_from_db()
    assert run.environment_version is None
    assert "Its environment was deleted" in client.get(f"/runs/{run.pk}/clone/").content.decode()


def test_a_link_chooses_an_environment(client):
    version = an_environment()
    page = client.get("/runs/new/", {"environment": version.pk})
    assert str(page.context["form"]["environment"].value()) == str(version.pk)
    assert client.get("/runs/new/", {"environment": "x" * 900}).status_code == 200


def test_the_settings_tab_and_a_comparison_name_the_environment(client):
    version = an_environment()
    run = launched(client, environment=str(version.pk))
    text = client.get(f"/runs/{run.pk}/spec/").content.decode()
    assert "sums with a calculator v1" in text
    assert "<code>calculate</code>" in text
    compared = dict(settings(run))
    assert compared["environment"] == "sums with a calculator v1"
    assert compared["episodes.limits.turns"] == 6


def test_a_wrong_limit_is_refused_beside_its_field(client):
    answer = client.post("/runs/new/", sent(environment=str(an_environment().pk), episode_turns="0"))
    assert answer.status_code == 422
    assert "episode_turns" in answer.context["form"].errors
