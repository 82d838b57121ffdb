"""Run by the trainer's interpreter: TRL's own lines on the batches of stdin (JSON), its numbers on stdout.

The lines stand in the middle of a method that also generates, so they are cut out of its source and run alone.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import textwrap
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

FIRST = "        unscorable_mask = "
LAST = "        advantages = torch.nan_to_num(advantages, nan=0.0)\n"


def lines() -> str:
    source = inspect.getsource(inspect.unwrap(GRPOTrainer._generate_and_score_completions))
    return textwrap.dedent(source[source.index(FIRST) : source.index(LAST) + len(LAST)])


def computed(code: str, batch: dict[str, Any]) -> dict[str, Any]:
    values = [[math.nan if one is None else one for one in column] for column in batch["values"]]
    held = {
        **vars(grpo_trainer),
        "device": "cpu",
        "num_generations": batch["group"],
        "rewards_per_func": torch.tensor(values).T,
        "self": SimpleNamespace(
            multi_objective_aggregation=batch["aggregation"],
            scale_rewards=batch["scale"],
            reward_weights=torch.tensor(batch["weights"]),
            reward_funcs=values,
        ),
    }
    exec(code, held)
    return {"advantages": held["advantages"].tolist(), "zero_std": held["is_std_zero"].tolist()}


if __name__ == "__main__":
    code = lines()
    json.dump([computed(code, batch) for batch in json.load(sys.stdin)], sys.stdout)
