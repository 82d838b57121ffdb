"""The parameters that the memory model counts from a config, beside those of Transformers' own models."""

from __future__ import annotations

import json

import pytest

from tests.trainer.preloaded import Preloaded
from workers.contract.memory.shapes import shape_of

COUNT = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
counts = {}
for family, values in json.load(sys.stdin).items():
    config = AutoConfig.for_model(family, **values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    counts[family] = sum(parameter.numel() for parameter in model.parameters())
print(json.dumps(counts))
"""
SIZES = {
    "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 160, "vocab_size": 1000, "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
MIXTURE = {"num_local_experts": 4, "num_experts_per_tok": 2}
FAMILIES: dict[str, dict[str, object]] = {
    "llama": {**SIZES, "attention_bias": True, "mlp_bias": True},
    "mistral": {**SIZES, "head_dim": 32},
    "qwen2": {**SIZES, "tie_word_embeddings": True},
    "qwen3": {**SIZES, "head_dim": 32},
    "gemma": {**SIZES, "tie_word_embeddings": True},
    "gemma2": {**SIZES, "tie_word_embeddings": True},
    "gemma3_text": {**SIZES, "tie_word_embeddings": True},
    "phi": SIZES,
    "phi3": SIZES,
    "mixtral": {**SIZES, **MIXTURE},
    "qwen2_moe": {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                  "shared_expert_intermediate_size": 80},
    "qwen3_moe": {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 32,
                  "mlp_only_layers": [1]},
    "gpt_oss": {**SIZES, **MIXTURE, "head_dim": 16},
}  # fmt: skip


@pytest.mark.trainer
@pytest.mark.processes
def test_the_formulas_count_what_transformers_makes(preloaded: Preloaded) -> None:
    done = preloaded.run("-c", COUNT, stdin=json.dumps(FAMILIES))
    counted = {family: shape_of({"model_type": family, "config": config}) for family, config in FAMILIES.items()}
    made = json.loads(done.stdout.splitlines()[-1])
    assert made == {family: shape.total for family, shape in counted.items() if shape}
