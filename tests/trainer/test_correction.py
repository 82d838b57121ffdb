"""The share that the correction of vLLM's sampling cuts is one of the tokens that the model wrote."""

from __future__ import annotations

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

SHARES = """
import torch
from workers.trainer.rollouts import correction

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
OWN = torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1]])  # an environment wrote two tokens of the first, whose ratio is 1

def share(mode, ratio, **tools):
    output = {"importance_sampling_ratio": torch.tensor(ratio), "completion_mask": MASK, **tools}
    return correction.clipped_counts(output, mode=mode, low=0.5, high=2.0)[1].tolist()

assert share("token_mask", [[0.0, 1, 1, 0.7], [1, 1, 1, 1]]) == [1, 6]
assert share("token_mask", [[0.0, 1, 1, 0.7], [1, 1, 1, 1]], tool_mask=OWN) == [1, 4]
assert share("token_truncate", [[2.0, 1, 1, 0.5], [2, 1, 1, 1]], tool_mask=OWN) == [3, 4]
assert share("sequence_mask", [[0.0], [1.5]], tool_mask=OWN) == [1, 2]
"""


def test_what_an_environment_wrote_is_not_counted(preloaded: Preloaded) -> None:
    preloaded.run("-c", SHARES)
