"""The rotary frequencies of a model that was built in 16 bits are those of one that was not."""

from __future__ import annotations

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

SHAPE = """
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from workers.trainer.configuration import hardware

rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
config = LlamaConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                     intermediate_size=32, vocab_size=64, max_position_embeddings=1024, rope_parameters=rope)
exact = AutoModelForCausalLM.from_config(config).model.rotary_emb.inv_freq
"""
ROUNDED = (
    SHAPE
    + """
model = AutoModelForCausalLM.from_config(config)
held = model.model.rotary_emb
held._buffers["inv_freq"] = held.inv_freq.bfloat16()
assert not torch.equal(held.inv_freq.float(), exact)
assert hardware.restore_rotary_frequencies(model) == 1
assert torch.equal(held.inv_freq, exact)
assert hardware.restore_rotary_frequencies(model) == 0
"""
)
INIT = (
    SHAPE
    + """
import os, tempfile
folder = tempfile.mkdtemp()
config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
exact = AutoModelForCausalLM.from_config(config).model.rotary_emb.inv_freq
AutoModelForCausalLM.from_config(config).save_pretrained(folder)
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
import deepspeed
from transformers.integrations import HfDeepSpeedConfig

deepspeed.init_distributed(dist_backend="gloo", verbose=False)
wanted = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
kept = HfDeepSpeedConfig(wanted)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
assert model.model.rotary_emb.inv_freq.dtype == torch.bfloat16, "nothing to mend: restore_rotary_frequencies can go"
assert hardware.restore_rotary_frequencies(model) == 1
assert torch.equal(model.model.rotary_emb.inv_freq, exact)
"""
)


def test_rounded_frequencies_are_computed_anew(preloaded: Preloaded) -> None:
    preloaded.run("-c", ROUNDED)


def test_zero_3_rounds_them_and_they_are_restored(preloaded: Preloaded) -> None:
    if not preloaded.has("deepspeed"):
        pytest.skip(f"deepspeed is not installed in the trainer's interpreter ({preloaded.python})")
    preloaded.run("-c", INIT)
