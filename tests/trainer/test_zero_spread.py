"""The share of groups without spread is one of groups, whatever rewards are divided by."""

from __future__ import annotations

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

SHARES = """
from types import SimpleNamespace
import torch
from workers.trainer.trainer import WatchedTrainer

# Three groups of two, with rewards of two components and one of evaluations alone; only the last group has spread.
REWARDS = torch.tensor([[1, 0, 5], [1, 0, 6], [0, 0, 7], [0, 0, 8], [0, 1, 9], [1, torch.nan, 9]])

def share(training, scale, aggregation):
    metrics = {mode: {"frac_reward_zero_std": [0.5, 0.0]} for mode in ("train", "eval")}
    it = SimpleNamespace(
        scale_rewards=scale, multi_objective_aggregation=aggregation, _scored=([], [], REWARDS), _metrics=metrics,
        reward_weights=torch.tensor([1.0, 2.0]), model=SimpleNamespace(training=training),
        num_generations=2, num_generations_eval=6,
    )
    WatchedTrainer._log_zero_spread(it)
    return metrics["train" if training else "eval"]["frac_reward_zero_std"]

assert share(True, "group", "sum_then_normalize") == [0.5, 0.0]  # TRL's own
assert share(True, "batch", "sum_then_normalize") == [0.5, 2 / 3]
assert share(True, "group", "normalize_then_sum") == [0.5, 2 / 3]
assert share(False, "batch", "sum_then_normalize") == [0.5, 0.0]  # one group of six
"""


def test_groups_are_counted_where_the_batch_is_what_rewards_are_divided_by(preloaded: Preloaded) -> None:
    preloaded.run("-c", SHARES)
