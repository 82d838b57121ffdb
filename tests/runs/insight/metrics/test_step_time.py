"""Where a step's time goes, and the advice that follows from the run's spec."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from runs.engine.models import Attempt, Run
from runs.engine.records import MetricRow
from runs.insight.metrics import folding, step_time
from runs.intake.host_api import ingest
from tests.runs.builders import ONE_GPU, SERVER, a_host, a_run, a_user, an_attempt, train

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(a_user())
    return client


def a_timed_run(
    hardware: dict[str, Any] | None = None, *, steps: int = 20, last: dict[str, float] | None = None, **parts: float
) -> Run:
    """A run whose steps take 10 s, but for the slow first one; `parts` in seconds."""
    a_host(gpus=2)
    attempt = an_attempt(run=a_run(hardware=hardware))
    timed = {f"time/{part}_s": seconds for part, seconds in parts.items()}
    lines = [
        train(seq, seq, step_time=500.0 if seq == 1 else 10.0, reward=1.0, **timed, **(last or {}))
        for seq in range(1, steps + 1)
    ]
    ingest.accept(attempt, lines)
    return Run.objects.get(pk=attempt.run_id)


def words(run: Run) -> dict[str, str]:
    time = step_time.of_run(run)
    assert time is not None
    return {one.part.name: one.text for one in time.advice}


def test_parts_are_shares_of_the_step_and_the_first_step_is_left_out() -> None:
    time = step_time.of_run(a_timed_run(generation=2.0, rewards=4.1, update=1.9))
    assert time is not None
    assert (time.seconds, time.steps) == (10.0, 19)
    shares = {part.name: round(part.share, 3) for part in time.parts}
    assert shares == {"rewards": 0.41, "generation": 0.2, "rest": 0.2, "update": 0.19}
    assert time.parts[0].sentence == "Rewards take 41% of each step"
    assert [one.part.name for one in time.advice] == ["rewards"]


def test_a_part_that_only_some_steps_have_counts_by_its_mean() -> None:
    run = a_timed_run(generation=8.0, update=2.0)
    for row in MetricRow.objects.filter(run=run, step__in=range(2, 20, 2)):
        row.values.pop("time/generation_s")
        row.save()
    time = step_time.of_run(run)
    assert time is not None
    assert {part.name: part.share for part in time.parts}["generation"] == pytest.approx(0.8 * 10 / 19)


def test_what_vllm_generates_meanwhile_is_told_beside_a_step_in_turns(client: Client) -> None:
    run = a_timed_run(SERVER, generation=1.0, update=8.0, last={"sampling/ahead_s": 7.0})
    time = step_time.of_run(run)
    assert time is not None
    assert (time.seconds, time.ahead, time.in_turns) == (10.0, 7.0, 16.0)
    page = client.get(f"/runs/{run.pk}/").content.decode()
    assert "one step ahead, a step takes 10 s" in page
    assert "without, about 16 s" in page


def test_without_enough_steps_there_is_nothing_to_say() -> None:
    assert step_time.of_run(a_timed_run(steps=5, generation=9.0)) is None


def test_without_timed_parts_there_is_nothing_to_say() -> None:
    assert step_time.of_run(a_timed_run()) is None


def test_it_reads_the_chunks_of_a_run_whose_rows_are_gone() -> None:
    run = a_timed_run(generation=9.0)
    before = step_time.of_run(run)
    Attempt.objects.filter(run=run).update(status="succeeded")
    folding.fold(run.pk, at_least=1)
    MetricRow.objects.filter(run=run).delete()
    run.refresh_from_db()
    assert before is not None
    assert step_time.of_run(run) == before


@pytest.mark.parametrize(
    ("hardware", "parts", "last", "part", "advice"),
    [
        (None, {"generation": 8.0}, {}, "generation", "On a CPU"),
        (ONE_GPU | {"rollout": "transformers"}, {"generation": 8.0}, {}, "generation", "With vLLM"),
        (
            SERVER,
            {"generation": 8.0},
            {"completions/mean_length": 200.0, "completions/max_length": 1024.0},
            "generation",
            "longest completion, which has 1,024 tokens, while the mean is 200",
        ),
        (SERVER | {"server": {"gpus": 1, "enforce_eager": True}}, {"generation": 8.0}, {}, "generation", "CUDA graphs"),
        (SERVER, {"weight_sync": 3.0}, {}, "weight_sync", "steps per generation"),
        (ONE_GPU, {"update": 7.0}, {}, "update", "gradient checkpointing"),
        (ONE_GPU | {"offload": "optimizer", "strategy": "zero2"}, {"update": 7.0}, {}, "update", "offloads to the CPU"),
        (None, {"rewards": 5.0}, {}, "rewards", "playground"),
    ],
)
def test_advice_follows_from_the_settings(
    hardware: dict[str, Any] | None, parts: dict[str, float], last: dict[str, float], part: str, advice: str
) -> None:
    assert advice in words(a_timed_run(hardware, last=last, **parts))[part]


def test_the_run_page_and_the_comparison_say_it(client: Client) -> None:
    run = a_timed_run(rewards=4.1, generation=2.0)
    page = client.get(f"/runs/{run.pk}/").content.decode()
    assert "Rewards take 41% of each step" in page
    assert "Rewards take 41% of each step" in client.get(f"/runs/compare/step-times/?runs={run.pk}").content.decode()
    assert "timed its steps yet" in client.get("/runs/compare/step-times/?runs=").content.decode()
