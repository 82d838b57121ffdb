"""The pages of deleting, restoring and renaming."""

from __future__ import annotations

import re

import pytest

from controlplane.catalogue.rewards.models import RewardConfig
from runs.engine.models import Run
from runs.engine.states import RunStatus
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_run, an_attempt, rewards_named

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def ended(name: str) -> Run:
    return an_attempt(RunStatus.STOPPED, run=a_run(name)).run


def test_what_goes_is_said_first_and_the_page_of_deleted_things_brings_it_back() -> None:
    runs, live = [ended("one"), ended("two")], an_attempt(RunStatus.RUNNING, run=a_run("live")).run
    client, ids = operator(), [run.pk for run in (*runs, live)]
    asked = client.get("/deleted/run/", {"id": ids}).content.decode()
    assert "Delete 2 runs?" in asked
    assert re.findall(r'href="([^"]*)"[^>]*aria-current="page"', asked) == ["/runs/"]
    assert "live is running. Stop it first." in asked
    assert Run.objects.count() == 3
    clicks = [client.post("/deleted/run/", {"id": ids}, follow=True).content.decode() for _ in range(2)]
    assert "they can be restored" in clicks[0]
    told = clicks[1]
    assert "live is running. Stop it first." in told
    assert list(Run.objects.all()) == [live]
    gone, restore = client.get(f"/runs/{ids[0]}/"), f'action="/deleted/run/{ids[0]}/restore"'
    assert gone.status_code == 404
    assert "The run “one” was deleted by" in gone.content.decode()
    assert restore in gone.content.decode()
    assert gone.content.decode().count("button primary") == 1
    assert restore not in viewer().get(f"/runs/{ids[0]}/").content.decode()
    listed = client.get("/deleted/").content.decode()
    assert all(name in listed for name in ("one", "two"))
    told = client.post(f"/deleted/run/{ids[0]}/restore", follow=True).content.decode()
    assert "one was restored." in told
    client.post(f"/deleted/run/{ids[1]}/for-good")
    told = client.post(f"/deleted/run/{ids[1]}/restore", follow=True).content.decode()
    assert "can no longer be restored" in told
    assert "There is no run" in client.get(f"/runs/{ids[1]}/").content.decode()


def test_the_runs_of_a_reward_config_are_told_apart_from_jobs_and_counted_to_the_end() -> None:
    runs = [a_run(f"run-{number}") for number in range(9)]
    Run.objects.filter(pk=runs[0].pk).update(kind="serve")
    version = runs[0].reward_version
    assert version is not None
    page = operator().get("/deleted/reward/", {"id": version.config_id}).content.decode()
    assert " and 3 more; 1 job." in page
    assert ">Rewards</a>" in page


def test_asking_again_after_another_tab_did_it_says_that_nothing_is_left() -> None:
    run, client = ended("one"), operator()
    client.post("/deleted/run/", {"id": run.pk})
    assert "no run left to delete" in client.get("/deleted/run/", {"id": run.pk}, follow=True).content.decode()
    assert client.get("/deleted/planet/", {"id": run.pk}).status_code == 404
    assert client.get("/deleted/dataset/", {"id": ["x", "9" * 30]}).status_code == 404


def test_a_title_becomes_a_form_and_the_form_a_title() -> None:
    config, _ = rewards_named("tags").config, rewards_named("taken")
    client, page = operator(), f"/names/reward/{config.pk}/"
    assert 'value="tags"' in client.get(f"{page}?edit").content.decode()
    refused = client.post(page, {"name": "taken"})
    assert refused.status_code == 422
    assert "Another reward config is already named “taken”" in refused.content.decode()
    assert "<title>better" in client.post(page, {"name": "better"}).content.decode()
    assert RewardConfig.objects.get(pk=config.pk).name == "better"
    assert viewer().post(page, {"name": "mine"}).status_code == 403
    assert "<form" not in viewer().get(f"{page}?edit").content.decode()
    assert "hx-get" not in viewer().get(f"/rewards/{config.pk}/v1/").content.decode()
