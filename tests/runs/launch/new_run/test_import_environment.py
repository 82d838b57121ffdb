"""An imported config with turns: its coefficient and limits, the environment it had, and what else it needs."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.catalogue.datasets.models import CorpusVersion, Dataset
from controlplane.catalogue.environments import saving as environments
from controlplane.catalogue.environments.models import Environment
from controlplane.catalogue.rewards.models import RewardConfig
from runs.engine.models import Run
from runs.launch.new_run import search_example
from runs.launch.new_run.search_example import COMPONENTS, ENVIRONMENT, REWARDS
from tests.controlplane.people import operator
from tests.runs.builders import a_user, rewards_named
from tests.runs.launch.new_run.launching_page import a_ready_host, a_version, sent
from tests.runs.launch.new_run.test_environment import CALCULATOR, an_environment
from tests.runs.launch.new_run.test_import import imported, notes, value
from tests.runs.launch.new_run.test_launch_form import launched

pytestmark = pytest.mark.django_db

MULTI_TURN = """\
hyperparameters = {
    'model_name': 'Qwen/Qwen2.5-3B',
    'num_gpus': 8,
    'learning_rate': 1e-6,
    'num_generations': 14,
    'per_device_train_batch_size': 2,
    'grad_accum_steps': 4,
    'num_iterations': 2,
    'max_steps': 300,
    'beta': 0,
    'trainer': 'mt_grpo',
    'turn_advantage_coef': 1,
}
"""


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def exported(client: Client, run: Run) -> str:
    """The run as a TRL YAML, and the run itself deleted."""
    text = client.get(f"/runs/{run.pk}/export", {"format": "trl.yaml"}).content.decode()
    run.delete()
    return text


def test_a_multi_turn_config_fills_the_coefficient_and_says_what_else_it_needs(client):
    answer = imported(client, MULTI_TURN.replace("coef': 1", "coef': 0.5"))
    assert [value(answer, n) for n in ("turn_advantage_coef", "num_iterations", "gradient_accumulation_steps")] == [
        "0.5", "2", "4",
    ]  # fmt: skip
    assert [words.split()[0:2] for words in answer.context["imported"].needs] == [
        ["An", "environment"],
        ["A", "reward"],
    ]
    assert "Create the search example" in answer.content.decode()
    assert "Unknown keys" not in notes(answer)


def test_the_trainer_alone_means_credit_for_each_turn(client):
    assert (
        value(imported(client, MULTI_TURN.replace("    'turn_advantage_coef': 1,\n", "")), "turn_advantage_coef")
        == "1.0"
    )
    other = imported(client, MULTI_TURN.replace("mt_grpo", "ppo"))
    assert "ppo isn't supported" in notes(other)


def test_nothing_more_is_needed_with_an_environment_and_rewards_for_each_turn(client):
    rewards = rewards_named("search", COMPONENTS)
    answer = imported(client, MULTI_TURN, environment=an_environment().pk, reward_version=rewards.pk)
    assert answer.context["imported"].needs == []


def test_trls_iterations_of_tool_calls_are_turns_with_the_answer_after_them(client):
    answer = imported(client, "model_name_or_path: m\nnum_generations: 4\nmax_tool_calling_iterations: 3\n")
    assert value(answer, "episode_turns") == "4"


def test_a_trainer_of_atropos_gets_its_api(client):
    command = "python -m example_trainer.grpo --model-name Qwen/Qwen2.5-3B --atropos-url http://localhost:8002"
    answer = imported(client, command)
    assert (value(answer, "driven_by"), answer.context["imported"].needs) == ("atropos", [])


def test_a_runs_spec_brings_its_environment_back_with_its_own_limits(client):
    version = an_environment(turns=3, calls=1)
    run = launched(client, environment=str(version.pk), episode_turns="6", turn_advantage_coef="0.25")
    text = exported(client, run)
    answer = imported(client, text)
    assert [str(value(answer, name)) for name in ("environment", "episode_turns", "turn_advantage_coef")] == [
        str(version.pk), "6", "0.25",
    ]  # fmt: skip
    assert value(answer, "episode_calls") in (None, "")


def test_an_environment_that_is_not_here_is_named(client):
    version = an_environment()
    run = launched(client, environment=str(version.pk))
    text = exported(client, run)
    version.environment.delete()
    assert "No environment here has these parts" in notes(imported(client, text))
    same = environments.make("another name", environments.EnvironmentComposition([CALCULATOR]))
    assert value(imported(client, text), "environment") == str(same.pk)


def test_the_search_example_is_made_once_and_chosen(client):
    for _ in range(2):
        answer = client.post("/runs/new/search-example", sent(temperature="0.7", reward_version=""))
        assert answer.status_code == 200
    environment, config = Environment.objects.get(name=ENVIRONMENT), RewardConfig.objects.get(name=REWARDS)
    assert value(answer, "environment") == str(environment.newest().pk)
    assert value(answer, "reward_version") == str(config.newest().pk)
    assert (value(answer, "temperature"), environment.versions.count(), config.versions.count()) == ("0.7", 1, 1)
    assert "are being created" in answer.content.decode()
    assert Dataset.objects.filter(name__startswith="Sample encyclopaedia").count() == 1


def test_a_corpus_that_is_not_made_yet_stops_the_launch(client):
    example = search_example.create(a_user())
    page = client.post("/runs/new/check", sent(environment=str(example.environment.pk)))
    assert "There is no corpus Sample encyclopaedia v1" in page.content.decode()
    CorpusVersion.objects.update(status=CorpusVersion.READY, sha256="1" * 64, documents=9)
    run = launched(client, dataset_version=str(a_version().pk), environment=str(example.environment.pk))
    [corpus] = run.spec["episodes"]["corpora"]
    assert (corpus["name"], corpus["sha256"], corpus["documents"]) == ("Sample encyclopaedia", "1" * 64, 9)
