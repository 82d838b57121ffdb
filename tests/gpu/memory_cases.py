"""The trainers whose memory is measured: models, batches, ways of saving memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workers.contract.run.spec import LoraSpec

FAMILIES: dict[str, dict[str, Any]] = {
    "llama-1b": {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128_256,
                 "tie_word_embeddings": True, "head_dim": 64},
    "llama-8b": {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 128_256,
                 "tie_word_embeddings": False},
    "qwen3-0.6b": {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                   "num_key_value_heads": 8, "intermediate_size": 3072, "head_dim": 128, "vocab_size": 151_936,
                   "tie_word_embeddings": True},
    "gemma3-1b": {"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4,
                  "num_key_value_heads": 1, "intermediate_size": 6912, "head_dim": 256, "vocab_size": 262_144,
                  "tie_word_embeddings": True},
    "phi3-mini": {"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
                  "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32_064,
                  "tie_word_embeddings": False},
    "qwen3-moe": {"model_type": "qwen3_moe", "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16,
                  "num_key_value_heads": 4, "intermediate_size": 3072, "moe_intermediate_size": 512, "head_dim": 64,
                  "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 151_936, "tie_word_embeddings": False},
    "mixtral": {"model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16,
                "num_key_value_heads": 4, "intermediate_size": 3584, "num_local_experts": 8,
                "num_experts_per_tok": 2, "vocab_size": 32_000, "tie_word_embeddings": False},
    "gpt-oss": {"model_type": "gpt_oss", "hidden_size": 1440, "num_hidden_layers": 8, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 1440, "num_local_experts": 16, "head_dim": 64,
                "num_experts_per_tok": 4, "vocab_size": 201_088, "tie_word_embeddings": False},
}  # fmt: skip
"""Shapes of other families than Qwen2's, by the keys of their config.json; the mixtures of experts are small ones."""

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
LINEAR = ("all-linear",)


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    gib: float
    """Room on the card that is kept free for it."""
    batch: int
    tokens: int
    hardware: dict[str, Any] = field(default_factory=dict)
    grpo: dict[str, Any] = field(default_factory=dict)
    lora: LoraSpec | None = None
    generates: bool = False
    merges: bool = False
    """Load a LoRA's base as for a run that merges it into vLLM's weights."""
    passes: int = 1
    attention: str | None = None


def lora(rank: int, modules: tuple[str, ...] = ATTENTION) -> LoraSpec:
    return LoraSpec(rank, 2 * rank, 0.0, modules)


OFF = {"gradient_checkpointing": False}
CASES: tuple[Case, ...] = (
    # the largest first: it has the card nearly to itself
    Case("full-7b-8bit-adam", "7b", 90, 4, 512, {"optimizer": "adamw_8bit"}),
    Case("full-0.5b", "0.5b", 20, 16, 512),
    Case("full-0.5b-no-checkpointing", "0.5b", 40, 16, 512, OFF),
    Case("full-1.5b", "1.5b", 36, 16, 512),
    Case("full-1.5b-generates", "1.5b", 36, 16, 256, generates=True),
    Case("full-1.5b-short", "1.5b", 32, 2, 128),
    Case("full-1.5b-passes", "1.5b", 36, 4, 512, passes=4),
    Case("full-1.5b-no-checkpointing", "1.5b", 60, 8, 512, OFF),
    Case("full-1.5b-kl", "1.5b", 42, 16, 512, grpo={"beta": 0.04}),
    Case("full-1.5b-8bit-adam", "1.5b", 30, 16, 512, {"optimizer": "adamw_8bit"}),
    Case("full-1.5b-adafactor", "1.5b", 30, 16, 512, {"optimizer": "adafactor"}),
    Case("full-1.5b-long", "1.5b", 44, 2, 8000),
    Case("full-1.5b-liger", "1.5b", 36, 16, 512, {"liger_kernels": True}),
    Case("full-3b", "3b", 62, 8, 1024),
    Case("full-llama-1b", "llama-1b", 36, 16, 512),
    Case("full-qwen3-0.6b", "qwen3-0.6b", 26, 16, 512),
    Case("full-gemma3-1b", "gemma3-1b", 34, 8, 512),
    Case("full-qwen3-moe", "qwen3-moe", 50, 4, 512),
    Case("full-mixtral", "mixtral", 50, 4, 512),
    Case("lora-1.5b", "1.5b", 12, 16, 512, lora=lora(16)),
    Case("lora-1.5b-generates", "1.5b", 12, 16, 512, lora=lora(16), generates=True),
    Case("lora-1.5b-no-checkpointing", "1.5b", 40, 8, 1024, OFF, lora=lora(16)),
    Case("lora-1.5b-merged", "1.5b", 18, 16, 512, lora=lora(16), merges=True),
    Case("lora-1.5b-all-linear-64", "1.5b", 18, 16, 512, lora=lora(64, LINEAR)),
    Case("lora-1.5b-kl", "1.5b", 14, 16, 512, grpo={"beta": 0.04}, lora=lora(16)),
    Case("lora-1.5b-long", "1.5b", 30, 4, 8000, lora=lora(16)),
    Case("lora-7b", "7b", 30, 8, 1024, lora=lora(32)),
    Case("lora-7b-no-checkpointing", "7b", 60, 4, 1024, OFF, lora=lora(32)),
    Case("lora-7b-merged", "7b", 50, 8, 1024, lora=lora(32), merges=True),
    Case("lora-7b-all-linear", "7b", 32, 8, 1024, lora=lora(16, LINEAR)),
    Case("lora-phi3-mini", "phi3-mini", 24, 8, 1024, lora=lora(16, LINEAR)),
    Case("lora-gemma3-1b", "gemma3-1b", 14, 8, 1024, lora=lora(16)),
    Case("lora-qwen3-moe", "qwen3-moe", 20, 8, 512, lora=lora(16)),
    Case("lora-gpt-oss", "gpt-oss", 20, 8, 512, lora=lora(16)),
    Case("4bit-1.5b", "1.5b", 10, 8, 512, {"quantization": "4bit"}, lora=lora(16)),
    Case("4bit-7b", "7b", 20, 4, 1024, {"quantization": "4bit"}, lora=lora(16, LINEAR)),
    Case("4bit-7b-no-checkpointing", "7b", 50, 2, 1024, {"quantization": "4bit", **OFF}, lora=lora(16)),
    Case("4bit-7b-generates", "7b", 20, 8, 128, {"quantization": "4bit"}, lora=lora(16), generates=True),
    Case("8bit-7b", "7b", 24, 4, 1024, {"quantization": "8bit"}, lora=lora(16)),
    Case("8bit-1.5b", "1.5b", 12, 8, 512, {"quantization": "8bit"}, lora=lora(16)),
    Case("4bit-qwen3-moe", "qwen3-moe", 20, 4, 512, {"quantization": "4bit"}, lora=lora(16)),
    Case("4bit-gpt-oss", "gpt-oss", 20, 4, 512, {"quantization": "4bit"}, lora=lora(16)),
    Case("zero1-1.5b", "1.5b", 44, 8, 512, {"strategy": "zero1"}),
    Case("zero2-1.5b", "1.5b", 44, 8, 512, {"strategy": "zero2"}),
    Case("zero3-1.5b", "1.5b", 44, 8, 512, {"strategy": "zero3"}),
    Case("zero3-lora-1.5b", "1.5b", 20, 8, 512, {"strategy": "zero3"}, lora=lora(16)),
    Case("zero2-offload-1.5b", "1.5b", 24, 8, 512, {"strategy": "zero2", "offload": "optimizer"}),
    Case("zero3-offload-1.5b", "1.5b", 24, 8, 512, {"strategy": "zero3", "offload": "parameters"}),
)
