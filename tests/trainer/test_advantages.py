"""Advantages as the control plane shows them are those that TRL trains with."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from tests.trainer.preloaded import Preloaded
from workers.rewards.advantages import AGGREGATIONS, SCALES, advantages

pytestmark = pytest.mark.trainer


def batches() -> list[dict[str, Any]]:
    """Random scores with gaps, of every size and scale of component; some groups of one value, some of no value."""
    made = []
    dice = random.Random(16)
    for aggregation, scale, group, round_ in itertools.product(AGGREGATIONS, SCALES, (1, 2, 4, 8), range(6)):
        components = dice.randint(1, 4)
        gaps = dice.choice([0.0, 0.2, 0.8])
        largest = [dice.choice([1, 1, 4, 256]) for _ in range(components)]
        values = [
            [None if dice.random() < gaps else dice.randint(-4, 4) / 4 * largest[c] for _ in range(3 * group)]
            for c in range(components)
        ]
        for column in values if round_ % 2 else []:
            column[:group] = [column[0]] * group
        weights = [dice.choice([1.0, 0.5, 0.0, -2.0]) for _ in range(components)]
        made.append({"values": values, "weights": weights, "group": group, "aggregation": aggregation, "scale": scale})
    return made


def test_advantages_are_those_of_trl(preloaded: Preloaded) -> None:
    asked = batches()
    done = preloaded.run("-m", "tests.trainer.advantages_of_trl", stdin=json.dumps(asked))
    for batch, theirs in zip(asked, json.loads(done.stdout), strict=True):
        ours = advantages(**batch)
        assert ours.advantages == pytest.approx(theirs["advantages"], rel=2e-4, abs=2e-4), batch
        if batch["aggregation"] == "sum_then_normalize" and batch["scale"] != "batch" and batch["group"] > 1:
            groups = zip(ours.stds, ours.zero_spread, theirs["zero_std"][:: batch["group"]], strict=True)
            assert all(zero == trl for std, zero, trl in groups if std is not None), batch
