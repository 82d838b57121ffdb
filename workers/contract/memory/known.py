"""Shapes of common models, from their config.json, for estimates without an inspected model."""

import functools
from typing import Any

from workers.contract.memory.shapes import Shape, shape_of


def _qwen2(hidden: int, layers: int, heads: int, kv_heads: int, inner: int, *, tied: bool = False) -> dict[str, Any]:
    vocabulary = 151_936 if tied else 152_064
    return _dense("qwen2", hidden, layers, heads, kv_heads, inner, vocabulary, tied=tied)


def _dense(
    family: str, hidden: int, layers: int, heads: int, kv_heads: int, inner: int, vocabulary: int, *, tied: bool = False
) -> dict[str, Any]:
    return {
        "model_type": family,
        "config": {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": inner,
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
        },
    }


KNOWN_MODELS: dict[str, dict[str, Any]] = {
    "Qwen2.5 0.5B": _qwen2(896, 24, 14, 2, 4864, tied=True),
    "Llama 3.2 1B": _dense("llama", 2048, 16, 32, 8, 8192, 128_256, tied=True),
    "Qwen2.5 1.5B": _qwen2(1536, 28, 12, 2, 8960, tied=True),
    "Qwen2.5 3B": _qwen2(2048, 36, 16, 2, 11_008, tied=True),
    "Qwen2.5 7B": _qwen2(3584, 28, 28, 4, 18_944),
    "Llama 3.1 8B": _dense("llama", 4096, 32, 32, 8, 14_336, 128_256),
    "Qwen2.5 14B": _qwen2(5120, 48, 40, 8, 13_824),
    "Mistral Small 24B": _dense("mistral", 5120, 40, 32, 8, 32_768, 131_072),
    "Qwen2.5 32B": _qwen2(5120, 64, 40, 8, 27_648),
}
KNOWN_MODELS["Mistral Small 24B"]["config"]["head_dim"] = 128


@functools.cache
def known_shape(name: str) -> Shape:
    """Return the shape of a model in KNOWN_MODELS. Raises KeyError for any other name."""
    shape = shape_of(KNOWN_MODELS[name])
    if shape is None:
        raise KeyError(name)
    return shape


LADDER = tuple(sorted(KNOWN_MODELS, key=lambda name: known_shape(name).total))
