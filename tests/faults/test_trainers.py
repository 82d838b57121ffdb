"""Trainers that end as they should not: the reason is read from their exit and their words, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.faults import invariants
from tests.faults.harness import CPU, Product, on_gpus

pytestmark = pytest.mark.processes

ENDS = {
    "crash:1": ("failed", "trainer_exited", "the reward function returned nothing"),
    "silent_exit": ("failed", "trainer_exited", "without reporting the end of training"),
    "steps:0": ("failed", "no_steps", "step 0"),
    "no_steps": ("failed", "no_steps", "12 prompts are fewer"),
    "refuse": ("failed", "spec_refused", "num_generations must be at least 2."),
    "oom": ("failed", "oom", "CUDA out of memory"),
    "sigkill": ("failed", "trainer_exited", "was killed by SIGKILL"),
    "torn": ("succeeded", "completed", "5 steps"),
}


@pytest.mark.telling
def test_each_end_of_a_trainer_has_its_reason_and_loses_nothing(product: Product) -> None:
    runs = {
        trainer: product.launch(on_gpus() if index % 2 else CPU, trainer=trainer) for index, trainer in enumerate(ENDS)
    }
    for trainer, run in runs.items():
        status, reason, words = ENDS[trainer]
        row = invariants.check(run, status=status, reason=reason)
        assert words in row["detail"], trainer
        assert row["receipt"]["survivors"] == []


def test_lines_that_are_no_lines_and_completions_keep_back_no_metric(product: Product) -> None:
    run = product.launch(trainer="steps:4,garbage,torn,samples:2,noise:200000")
    row = invariants.check(run, status="succeeded", reason="completed")
    assert row["step"] == 4
