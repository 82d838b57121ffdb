"""Learnability, prompts, comparisons, exports, inspections, corpora and reference checks by the API."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from controlplane.catalogue.datasets.models import CorpusVersion, DatasetVersion
from controlplane.catalogue.references.models import ReferenceCheck
from runs.engine.models import HealthPreset, Run
from runs.intake.host_api import uploads
from tests.runs.api.clients import Program
from tests.runs.builders import a_run, an_attempt, rewards_named
from workers.contract.run.spec import ModelSpec

pytestmark = pytest.mark.django_db


def test_prompts_are_listed_by_how_often_they_are_solved() -> None:
    attempt = an_attempt()
    groups = [{"step": 1, "row": row, "completions": [{"text": "4", "reward": 1.0}]} for row in (3, 5, 7)]
    uploads.samples(attempt, 1, groups)
    program = Program()
    first = program.get(f"runs/{attempt.run_id}/prompts", limit=2).json()
    rest = program.get(f"runs/{attempt.run_id}/prompts", limit=2, cursor=first["next_cursor"]).json()
    assert [[each["row"] for each in page["items"]] for page in (first, rest)] == [[3, 5], [7]]
    assert program.get(f"runs/{attempt.run_id}/prompts", cursor="x").status_code == 422


def test_runs_are_compared_by_their_settings() -> None:
    first, second = a_run("one", grpo={"beta": 0.1}), a_run("two", grpo={"beta": 0.2})
    answer = Program().get("compare", runs=f"{first.pk},{second.pk}").json()
    assert {"name": "grpo.beta", "values": ["0.1", "0.2"]} in answer["settings"]
    assert Program().get("compare", runs="nothing").status_code == 404


def test_a_run_is_exported_for_another_tool() -> None:
    run, program = a_run(model=ModelSpec("org/tiny")), Program()
    assert "org/tiny" in program.get(f"runs/{run.pk}/export", format="axolotl.yaml").content.decode()
    assert program.get(f"runs/{run.pk}/export", format="word.doc").json()["error"]["where"] == "format"


def test_a_run_gets_a_preset_of_health_checks() -> None:
    run, preset = an_attempt().run, HealthPreset.objects.exclude(is_default=True).first()
    assert preset is not None
    assert Program().patch(f"runs/{run.pk}", {"preset": preset.pk}).status_code == 200
    assert Run.objects.get(pk=run.pk).preset == preset
    assert Program().patch(f"runs/{run.pk}", {"preset": 10**9}).json()["error"]["where"] == "preset"


def test_a_model_is_asked_about_on_a_host_in_reach_only() -> None:
    refused = Program().post("inspections", {"model": "org/tiny", "revision": "v1", "host": "nowhere"})
    assert (refused.status_code, refused.json()["error"]["where"]) == (409, "host")


def test_a_run_that_is_no_check_has_no_result_and_no_gateway() -> None:
    run, program = an_attempt().run, Program()
    assert program.get(f"runs/{run.pk}/learnability").json() == {"verdict": None, "result": None}
    assert program.post(f"runs/{run.pk}/learnability/filter", {"low": 90, "high": 10}).status_code == 409
    assert program.post(f"runs/{run.pk}/gateway-key").status_code == 409


def test_a_corpus_is_made_archived_and_deleted(settings: Settings, tmp_path: object) -> None:
    settings.DATA_DIR = tmp_path
    program = Program()
    dataset = program.post("datasets/rows", {"rows": '{"title": "A", "text": "B"}\n', "name": "facts"}).json()["item"]
    DatasetVersion.objects.update(status=DatasetVersion.NEEDS_MAPPING, report={"columns": [{"name": "text"}]})
    wanted = {"dataset": dataset["dataset"], "version": 1, "name": "facts", "text": ["text"]}
    made = program.post("corpora", wanted)
    assert made.status_code == 201, made.json()
    path = f"corpora/{made.json()['item']['corpus']}/1"
    assert program.patch(path, {"archived": True}).json()["item"]["archived"]
    assert program.post("corpora", {**wanted, "text": ["nothing"]}).json()["error"]["where"] == "text"
    assert program.delete(path).status_code == 204
    assert not CorpusVersion.objects.exists()


def test_paragraphs_of_a_text_become_a_corpus(settings: Settings, tmp_path: object) -> None:
    settings.DATA_DIR = tmp_path
    program = Program()
    made = program.post("corpora/text", {"name": "rivers", "text": "# Danube\n\nIt is long.\n", "markdown": True})
    assert (made.status_code, made.json()["item"]["name"]) == (201, "rivers")
    assert program.post("corpora/text", {"name": "empty", "text": " "}).json()["error"]["where"] == "text"


def test_reference_answers_are_checked_and_the_check_is_stopped() -> None:
    run, program = a_run(), Program()
    DatasetVersion.objects.update(mapping={"answer": "a"})
    config = [{"name": "right", "function": "numeric_match", "weight": 1.0, "params": {}}]
    wanted = {"dataset_version": run.dataset_version_id, "reward_version": rewards_named("right", config).pk}
    started = program.post("reference-checks", wanted)
    assert started.status_code == 201, started.json()
    path = f"reference-checks/{started.json()['item']['id']}"
    assert program.post(f"{path}/stop").json()["item"]["status"] == ReferenceCheck.STOPPED
    assert program.get(f"{path}/failures").json()["items"] == []
    assert program.post(f"{path}/leave-out").status_code == 409
