"""The stale-policy canary's sequences and figures; test_lora_swap.py trains with it."""

from __future__ import annotations

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

SEQUENCES = """
import torch
from workers.trainer.rollouts import canary

batch = {
    "prompt_ids": torch.tensor([[0, 5, 6], [0, 5, 6], [7, 8, 9], [7, 8, 9]]),
    "prompt_mask": torch.tensor([[0, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]),
    "completion_ids": torch.tensor([[1, 2, 3], [4, 0, 0], [2, 0, 0], [3, 3, 3]]),
    "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 1, 1]]),
}
assert canary.choose_sequences(batch, 2) == [[5, 6, 1, 2], [7, 8, 9]]  # the prompt's end, all but the last token
long = {name: tensor.repeat(1, 200) for name, tensor in batch.items()}
assert [len(ids) for ids in canary.choose_sequences(long, 1)] == [canary.MAX_TOKENS] * 4

# Prompts and completions of one token give nothing to score: neither side is asked.
from types import SimpleNamespace
single = {name: tensor[:, -1:] for name, tensor in batch.items()}
trainer = SimpleNamespace(state=SimpleNamespace(global_step=0), num_generations=2)
assert canary.choose_sequences(single, 2) == []
canary.Canary(trainer, None).check(single)
"""


def test_sequences_are_the_ends_of_prompts_with_all_but_the_last_token_of_their_completions(
    preloaded: Preloaded,
) -> None:
    preloaded.run("-c", SEQUENCES)
