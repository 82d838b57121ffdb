"""Deleting, restoring, renaming and disk use over the API."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.hardware.models import Host
from runs.engine import disk
from runs.engine.models import Run
from runs.engine.states import RunStatus
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt, rewards_named

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def run() -> Run:
    return an_attempt(RunStatus.STOPPED, run=a_run("one")).run


def listed(program: Program) -> list[Any]:
    return [(item["kind"], item["name"], item["restorable"]) for item in program.get("deleted").json()["items"]]


def test_a_run_is_renamed_deleted_restored_and_deleted_for_good(run: Run) -> None:
    program, live = Program(), a_run("live")
    assert program.patch(f"runs/{run.pk}", {"name": "better"}).json()["name"] == "better"
    assert "name: better" in program.get(f"runs/{run.pk}/spec", format="yaml").content.decode()
    assert program.patch(f"runs/{run.pk}", {"name": " "}).json()["error"]["where"] == "name"
    assert "Remove it from the queue" in program.delete(f"runs/{live.pk}").json()["error"]["what"]
    assert program.delete(f"runs/{run.pk}").status_code == 204
    assert program.delete(f"runs/{run.pk}").status_code == 404
    assert listed(program) == [("run", "better", True)]
    assert program.post(f"deleted/run/{run.pk}/restore").json() == {"name": "better", "says": ""}
    assert program.delete(f"deleted/run/{run.pk}").status_code == 404
    program.delete(f"runs/{run.pk}")
    assert program.delete(f"deleted/run/{run.pk}").status_code == 204
    assert listed(program) == [("run", "better", False)]
    assert program.post(f"deleted/run/{run.pk}/restore").status_code == 409


def test_datasets_rewards_and_profiles_are_renamed_and_deleted_alike(run: Run) -> None:
    program, version = Program(), run.dataset_version
    dataset, config = version.dataset_id, rewards_named("other").config_id
    assert program.patch(f"datasets/{dataset}", {"name": "sums of two"}).json()["item"]["name"] == "sums of two"
    assert "These runs use" in program.delete(f"datasets/{dataset}").json()["error"]["what"]
    assert program.patch(f"rewards/{config}", {"name": "tags"}).status_code == 422
    assert program.patch(f"rewards/{config}", {"name": "mine"}).json()["item"]["name"] == "mine"
    for path in (f"rewards/{config}", f"profiles/{run.profile_id}"):
        assert program.delete(path).status_code == 204
        assert program.delete(path).status_code == 404
    assert [kind for kind, _, _ in listed(program)] == ["profile", "reward"]
    assert program.post("deleted/planet/1/restore").status_code == 422
    assert program.post(f"deleted/profile/{'9' * 30}/restore").status_code == 404


def test_disk_use_of_a_run_and_of_a_host(run: Run) -> None:
    host = a_host("h1", inventory={"disk_total_mib": 1000, "disk_free_mib": 600})
    disk.store_measurement(host, {run.pk: 4096})
    program = Program()
    [place] = program.get(f"runs/{run.pk}/disk").json()["hosts"]
    assert (place["host"], place["bytes"]) == ("h1", 4096)
    item = program.get(f"hosts/{Host.objects.get().pk}/disk").json()["item"]
    assert (item["total_mib"], item["free_mib"], item["bytes"], item["runs"]) == (1000, 600, 4096, 1)
    assert item["biggest"] == [{"run": run.pk, "name": "one", "deleted": False, "bytes": 4096}]
