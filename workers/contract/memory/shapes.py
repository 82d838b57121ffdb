"""A model's parameters by kind, from its config. The kinds differ in how they are quantized, copied and gathered."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workers.contract.run.spec import LoraSpec

_HEAD_SIZES = {"gemma": 256, "gemma2": 256, "gemma3_text": 256, "qwen3": 128, "qwen3_moe": 128, "gpt_oss": 64}
"""Head sizes of families that don't derive them from the hidden size, for configs that omit it."""
_FOUR_NORMS = ("gemma2", "gemma3_text")
_HEAD_NORMS = ("qwen3", "qwen3_moe", "gemma3_text")
_TIED_MODEL_TYPES = ("gemma", "gemma2", "gemma3_text")
"""Families whose output layer is the embedding, although their configs don't say so."""
_EXPERT_COUNTS = ("num_experts", "num_local_experts")
EAGER_FAMILIES = ("gpt_oss",)
"""Families whose attention materialises the whole matrix of scores."""


@dataclass(frozen=True)
class Shape:
    """A model's sizes, as numbers of weights unless stated otherwise."""

    hidden: int
    layers: int
    query: int
    key: int
    """Width of all key heads together, and of all value heads."""
    inner: int
    """Width of the MLP that one token passes through; in a mixture of experts, the total width of its active
    experts."""
    vocab: int
    embedding: int
    head: int
    """Weights of the output layer; 0 if it is the embedding."""
    linear: int
    """Weights of all linear layers except the output layer and packed experts."""
    experts: int = 0
    """Weights of experts stored as one tensor per layer, which bitsandbytes doesn't quantize."""
    small: int = 0
    heads: int = 1
    active_experts: int = 0
    """Experts per token; 0 for a dense model."""
    fused: bool = False
    """True if queries, keys and values share one linear layer, and gate and up another, as in Phi-3."""
    eager_attention: bool = False

    @property
    def total(self) -> int:
        return self.embedding + self.head + self.linear + self.experts + self.small

    @property
    def largest(self) -> int:
        return max(self.embedding, self.head, self.experts // max(self.layers, 1))

    @property
    def largest_linear(self) -> int:
        return self.hidden * max(self.query, 0 if self.experts else self.inner * (2 if self.fused else 1))

    def kv_bytes(self) -> int:
        """Return the bytes of one token's keys and values in all layers, in 16 bits."""
        return 2 * self.layers * self.key * 2


def shape_of(facts: Mapping[str, Any]) -> Shape | None:
    """Derive the shape from an inspection: its `config`, `model_type` and, where the weights were read, `parameters`.

    Return None if sizes are missing. A count of the weights overrides the formula: the difference is added to the
    linear layers.
    """
    config = facts.get("config")
    shape = _shape_from_config(config, str(facts.get("model_type") or "")) if isinstance(config, Mapping) else None
    parameter_count = facts.get("parameters")
    if shape is None or not isinstance(parameter_count, int) or parameter_count <= 0:
        return shape
    difference = parameter_count - shape.total
    return replace(shape, linear=max(shape.linear + difference, 0)) if difference else shape


def _shape_from_config(config: Mapping[str, Any], family: str) -> Shape | None:
    hidden, layers, heads, vocab = (
        _size(config, *names)
        for names in (
            ("hidden_size", "n_embd", "d_model"),
            ("num_hidden_layers", "n_layer", "num_layers"),
            ("num_attention_heads", "n_head", "num_heads"),
            ("vocab_size",),
        )
    )
    if not (hidden and layers and heads and vocab):
        return None
    kv_heads = _size(config, "num_key_value_heads", "num_kv_heads") or heads
    head = _size(config, "head_dim") or _HEAD_SIZES.get(family) or hidden // heads
    inner = _size(config, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    query, key = heads * head, kv_heads * head
    tied = bool(config.get("tie_word_embeddings", family in _TIED_MODEL_TYPES))
    attention = 2 * hidden * query + 2 * hidden * key
    count = _size(config, *_EXPERT_COUNTS)
    active = _size(config, "num_experts_per_tok") if count else 0
    expert_inner = (_size(config, "moe_intermediate_size") or inner) if count else 0
    # Phi (not Phi-3) has two linear layers in its MLP, all others three.
    mlp = (2 if family == "phi" else 3) * hidden * inner
    shared = 3 * hidden * _size(config, "shared_expert_intermediate_size")
    dense_layers, mixture_layers = _layers_by_kind(config, layers, count)
    return Shape(
        hidden=hidden,
        layers=layers,
        query=query,
        key=key,
        inner=active * expert_inner + _size(config, "shared_expert_intermediate_size") if count else inner,
        vocab=vocab,
        embedding=vocab * hidden,
        head=0 if tied else vocab * hidden,
        linear=layers * attention + dense_layers * mlp + mixture_layers * shared,
        experts=mixture_layers * count * 3 * hidden * expert_inner,
        small=_small_weights(config, family, hidden, layers, heads, head, query, key, inner)
        + mixture_layers * _router(family, hidden, count, expert_inner, shared=bool(shared))
        + (0 if tied or family != "phi" else vocab),
        heads=heads,
        active_experts=active,
        fused=family == "phi3",
        eager_attention=family in EAGER_FAMILIES,
    )


def _layers_by_kind(config: Mapping[str, Any], layers: int, experts: int) -> tuple[int, int]:
    if not experts:
        return layers, 0
    step = _size(config, "decoder_sparse_step") or 1
    dense = config.get("mlp_only_layers")
    dense_at = {n for n in dense if isinstance(n, int)} if isinstance(dense, list) else set()
    mixtures = sum(1 for n in range(layers) if n not in dense_at and (n + 1) % step == 0)
    return layers - mixtures, mixtures


def _small_weights(
    config: Mapping[str, Any],
    family: str,
    hidden: int,
    layers: int,
    heads: int,
    head: int,
    query: int,
    key: int,
    inner: int,
) -> int:
    """Count the weights of norms, biases and attention sinks in all layers, and of the last norm."""
    if family == "phi":  # one norm with bias for both branches, and a bias on every linear layer
        return layers * (2 * hidden + query + 2 * key + 2 * hidden + inner) + 2 * hidden
    layer = (4 if family in _FOUR_NORMS else 2) * hidden
    if family in _HEAD_NORMS:
        layer += 2 * head
    if family in ("qwen2", "qwen2_moe"):
        layer += query + 2 * key
    elif config.get("attention_bias"):
        layer += query + 2 * key + hidden
    if config.get("mlp_bias"):
        layer += 2 * inner + hidden
    if family == "gpt_oss":
        layer += heads + (0 if config.get("attention_bias") else query + 2 * key + hidden)
    return layers * layer + hidden


def _router(family: str, hidden: int, experts: int, inner: int, *, shared: bool) -> int:
    """Count the weights of the router and the shared expert's gate in one layer; in gpt-oss, biases are included."""
    if family == "gpt_oss":
        return hidden * experts + experts + experts * (2 * inner + hidden)
    return hidden * experts + (hidden if shared else 0)


def adapter(shape: Shape, lora: LoraSpec) -> int:
    """Count the trained weights of a LoRA: r × (inputs + outputs) of each target."""
    sides = _sides(shape)
    names: Iterable[str] = lora.target_modules
    if tuple(names) == ("all-linear",):
        names = [name for name in sides if name != "lm_head"]
    per_layer = sum(sum(sides[name]) for name in set(names) if name in sides and name != "lm_head")
    head = shape.vocab + shape.hidden if "lm_head" in lora.target_modules else 0
    return lora.r * (shape.layers * per_layer + head)


def targets_mlp(shape: Shape, lora: LoraSpec) -> bool:
    return lora.target_modules == ("all-linear",) or any(name in _MLP_MODULES for name in lora.target_modules)


_MLP_MODULES = ("gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2")


def _sides(shape: Shape) -> dict[str, tuple[int, int]]:
    """Return the numbers of inputs and outputs of each linear module: lm_head and, except packed experts, a layer's."""
    hidden, query, key, inner = shape.hidden, shape.query, shape.key, shape.inner
    if shape.fused:
        attention = {"qkv_proj": (hidden, query + 2 * key), "o_proj": (query, hidden)}
        mlp = {"gate_up_proj": (hidden, 2 * inner), "down_proj": (inner, hidden)}
    else:
        attention = {
            "q_proj": (hidden, query),
            "k_proj": (hidden, key),
            "v_proj": (hidden, key),
            "o_proj": (query, hidden),
        }
        mlp = {"gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}
    return {**attention, **({} if shape.experts else mlp), "lm_head": (hidden, shape.vocab)}


def _size(config: Mapping[str, Any], *names: str) -> int:
    value = next((config[name] for name in names if config.get(name) is not None), None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
