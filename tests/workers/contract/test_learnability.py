"""How long a learnability check is, and what it changes in a run's settings."""

from __future__ import annotations

import pytest

from workers.contract.run import learnability
from workers.contract.run.batch_rules import Batch


@pytest.mark.parametrize(
    ("batch", "steps"),
    [
        (Batch(per_device_train_batch_size=64, num_generations=8), 8),
        (Batch(per_device_train_batch_size=64, num_generations=8, num_iterations=2), 16),
        (Batch(per_device_train_batch_size=8, num_generations=8, gradient_accumulation_steps=8), 8),
        (Batch(per_device_train_batch_size=8, num_generations=8, steps_per_generation=4), 64),
        (Batch(per_device_train_batch_size=64, num_generations=4, processes=8), 3),
        (Batch(per_device_train_batch_size=2, num_generations=2), 64),
    ],
)
def test_a_check_samples_64_groups_in_whole_generations_and_at_least_three(batch: Batch, steps: int) -> None:
    assert learnability.steps(batch) == steps


def test_a_check_of_every_prompt_takes_as_many_generations_as_it_needs() -> None:
    batch = Batch(per_device_train_batch_size=64, num_generations=8)
    assert learnability.settings({}, batch, 7000)["max_steps"] == 875


def test_a_check_has_the_run_s_settings_but_changes_no_weight_and_saves_nothing() -> None:
    grpo = {"learning_rate": 1e-4, "warmup_steps": 10, "num_train_epochs": 3, "beta": 0.02, "eval_strategy": "steps"}
    batch = Batch.of(grpo, 1)
    settings = learnability.settings(grpo, batch)
    assert settings["beta"] == 0.02
    assert (settings["learning_rate"], settings["max_steps"]) == (0.0, learnability.steps(batch))
    assert (settings["eval_strategy"], settings["save_strategy"]) == ("no", "no")
    assert not {"warmup_steps", "num_train_epochs"} & settings.keys()
