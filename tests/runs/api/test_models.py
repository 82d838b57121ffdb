"""Evaluations, trials, jobs on saved models and served models by the API."""

from __future__ import annotations

import pytest

from controlplane.platform.accounts.models import ApiScope
from runs.engine.models import ProfileTrial, Run
from runs.engine.served.models import Turn
from tests.controlplane.platform.accounts.secret_rows import a_hub_token
from tests.runs.api.clients import Program
from tests.runs.engine.jobs.test_merging import trained
from tests.runs.insight.evaluations.test_evaluations import run
from tests.runs.launch.new_run.launching_page import a_config, a_ready_host, a_version, cpu_profile
from tests.runs.pages.served.builders import a_checkpoint
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import BENCHMARK, PUSH

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
__all__ = ["run"]


def test_a_checkpoint_is_evaluated_once_beside_the_starting_model(run: Run) -> None:
    program, path = Program(), f"runs/{run.pk}/evaluations"
    answer = program.post(path, {"prompts": 4, "generations": 2})
    assert answer.status_code == 201, answer.json()
    assert {each["kind"] for each in answer.json()["started"]} == {EVALUATION}
    again = program.post(path, {"prompts": 4, "generations": 2})
    assert (again.status_code, again.json()["started"]) == (200, [])
    assert [each["step"] for each in program.get(path).json()["items"]] == [None, 4]


@pytest.mark.parametrize("wrong", [{"prompts": 10**6}, {"checkpoints": [10**9]}, {"dataset": 10**9}])
def test_what_can_not_be_evaluated_is_refused_by_its_field(run: Run, wrong: dict[str, object]) -> None:
    answer = Program().post(f"runs/{run.pk}/evaluations", wrong)
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, next(iter(wrong)))
    assert not run.jobs.exists()


def test_profiles_are_tried_and_the_trial_is_stopped() -> None:
    rows = {"host": a_ready_host().pk, "dataset_version": a_version().pk, "reward_version": a_config().pk}
    program = Program()
    answer = program.post("trials", {**rows, "model": "/models/tiny", "profiles": [cpu_profile().pk]})
    assert answer.status_code == 201, answer.json()
    trial = answer.json()["item"]
    assert [each["profile"] for each in trial["results"]] == ["CPU"]
    assert program.post(f"trials/{trial['id']}/stop").json() == {"stopped": 1}
    assert program.post("trials", {**rows, "model": "-x", "profiles": [1]}).status_code == 422


def test_a_key_starts_a_trial_once_and_another_trial_under_it_is_a_conflict() -> None:
    rows = {"host": a_ready_host().pk, "dataset_version": a_version().pk, "reward_version": a_config().pk}
    asked = {**rows, "model": "/models/tiny", "profiles": [cpu_profile().pk]}
    program, key = Program(), {"headers": {"Idempotency-Key": "tonight"}}
    first, second = (program.post("trials", asked, **key) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["item"]["id"] == second.json()["item"]["id"]
    refused = program.post("trials", {**asked, "model": "/models/other"}, **key)
    assert (refused.status_code, refused.json()["error"]["where"]) == (409, "Idempotency-Key")
    assert ProfileTrial.objects.count() == 1


def test_a_model_is_benchmarked_and_its_jobs_are_listed() -> None:
    model = trained()[0].events.get(kind="checkpoint").pk
    program = Program()
    assert program.post(f"models/{model}/benchmark", {"tasks": ["gsm8k"]}).json()["kind"] == BENCHMARK
    assert [job["kind"] for job in program.get(f"models/{model}/jobs").json()["items"]] == [BENCHMARK]
    assert program.post(f"models/{model}/benchmark", {"tasks": ["../x"]}).status_code == 409
    refused = program.post(f"models/{model}/gguf", {"type": "f16"})
    assert "llama.cpp" in refused.json()["error"]["what"]


def test_an_admin_pushes_a_model_with_its_card_and_an_operator_does_not() -> None:
    a_hub_token()
    model = trained()[0].events.get(kind="checkpoint").pk
    assert Program().post(f"models/{model}/push", {"repository": "Org/Model"}).status_code == 403
    program = Program(ApiScope.ADMIN)
    assert program.post(f"models/{model}/push", {"repository": "Org"}).json()["error"]["where"] == "repository"
    assert program.post(f"models/{model}/push", {"repository": "Org/Model"}).json()["kind"] == PUSH
    job = Run.objects.get(kind=PUSH).spec["job"]
    assert job["private"]
    assert job["card"].strip() == program.get(f"models/{model}/card").content.decode().strip()


def test_a_model_is_served_with_a_key_and_stopped() -> None:
    model, program = a_checkpoint().event.pk, Program(ApiScope.ADMIN)
    started = program.post(f"models/{model}/serving", {"idle_minutes": 5})
    assert started.status_code == 201, started.json()
    assert started.json()["key"].startswith("sk-")
    assert program.get(f"models/{model}/serving").json()["endpoint"]["only_on_its_host"]
    assert program.post(f"models/{model}/serving", {"address": "0.0.0.0"}).json()["error"]["where"] == "address"
    assert program.post(f"models/{model}/serving/stop").json()["changed"]


def test_both_models_are_asked_in_the_chat() -> None:
    model, program = a_checkpoint().event.pk, Program()
    assert program.post(f"models/{model}/chat", {}).status_code == 201
    asked = program.post(f"models/{model}/chat/turns", {"text": "What is 2 + 3?", "seed": 7})
    assert asked.status_code == 201, asked.json()
    assert Turn.objects.get().sampling["seed"] == 7
    [turn] = program.get(f"models/{model}/chat").json()["items"]
    assert {answer["model"] for answer in turn["answers"]} == {"trained", "base"}
    assert program.post(f"models/{model}/chat/turns", {}).json()["error"]["where"] == "text"
    assert program.post(f"models/{model}/chat/stop").json()["changed"]
