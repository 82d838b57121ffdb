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

SCORES = """
import contextlib
from types import SimpleNamespace
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from workers.trainer.rollouts import canary
from workers.trainer.rollouts.sync_figures import joined

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
model = LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **sizes)).eval()
accelerator = SimpleNamespace(device="cpu", autocast=contextlib.nullcontext, is_main_process=True)
trainer = SimpleNamespace(model=model, accelerator=accelerator, vllm_mode="colocate", num_generations=1)
trainer.state, trainer._metrics = SimpleNamespace(global_step=0), {"train": __import__("collections").defaultdict(list)}
asked = []
def by_vllm(sequences):
    asked.append(trainer.state.global_step)
    return [[[None] + [-1.0] * (len(ids) - 1) for ids in sequences]]

watched = canary.Canary(trainer, by_vllm)
ids = [torch.randint(1, 50, (1, length)) for length in (9, 90, 2)]
watched._sequences = [row[0].tolist() for row in ids]
alone = []
for row in ids:  # each sequence in a pass of its own, without padding
    logps = model(input_ids=row).logits[0, :-1].log_softmax(-1).gather(-1, row[0, 1:, None])[:, 0]
    alone.append(logps[-canary.MAX_SCORED :].tolist())
assert [len(scores) for scores in alone] == [8, canary.MAX_SCORED, 1]
torch.testing.assert_close(torch.tensor(watched._score_by_trainer()), torch.tensor(joined(alone)))
assert not model.training

for step in range(33):
    trainer.state.global_step = step
    watched.score_synced()
    watched.check(None)
assert asked == [*range(8), 15, 23, 31], asked
assert len(trainer._metrics["train"]["sync/logp_gap"]) == len(asked)
"""


def test_the_sequences_are_scored_in_one_batch_after_each_of_the_first_syncs_and_then_every_eighth(
    preloaded: Preloaded,
) -> None:
    preloaded.run("-c", SCORES)


def test_sequences_are_the_ends_of_prompts_with_all_but_the_last_token_of_their_completions(
    preloaded: Preloaded,
) -> None:
    preloaded.run("-c", SEQUENCES)
