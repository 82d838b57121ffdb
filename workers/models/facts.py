"""Facts about a model, read from its files: architecture, sizes, tokenizer, weights.

A config that contradicts the weights is refused, because all estimates before a launch (memory, tensor parallelism,
lengths) rely on it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from workers.contract.wire.hub_files import TOKENIZERS
from workers.models.files import InspectionError, ModelFiles, Weights

_CONFIG_KEYS = (
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "tie_word_embeddings",
    "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "sliding_window",
    "attention_bias", "mlp_bias", "shared_expert_intermediate_size", "decoder_sparse_step", "mlp_only_layers",
)  # fmt: skip
_SIZES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "vocab": ("vocab_size",),
}
"""Config keys of each size, which differ between model families. A list (one value per layer) is valid, but means that
there is no single size."""
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_MAX_SIZE = 100_000_000
_TEMPLATE_LIMIT = 4 << 20
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte)\.weight$")
_LAYER = re.compile(r"^(.*?\b(?:layers|h))\.(\d+)\.")
_EXTRA_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers")
"""Config keys with the number of additional layers for speculative decoding."""
_PLAIN_ATTENTION = frozenset(
    ["llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
     "olmo2", "smollm3", "granite", "cohere", "phi"]
)  # fmt: skip
"""Model families in which every layer's q_proj has the shape (heads × head size, hidden size)."""
_OPENED_TAG = re.compile(r"<(\w+)>(?:\\n|\s)*(?:['\"]|\{%|\Z)")
"""Pattern of a tag at the end of a string in a chat template, or at the template's end."""
_CONSTANT_HEAD_SIZE = ("gemma", "qwen3")
"""Families whose default head size is a constant, not hidden size / heads."""


def facts(files: ModelFiles) -> dict[str, Any]:
    """Read the facts that an inspection reports. Raises InspectionError for an unusable model."""
    config = _config(files)
    text_config = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    sizes = _sizes(text_config)
    tokenizer = _tokenizer(files)
    weights = files.weights()
    if problem := (
        _embedding_problem(text_config, sizes["vocab"], sizes["hidden"], weights)
        or _layers_problem(text_config, sizes["layers"], weights)
        or _attention_problem(text_config, sizes, weights)
    ):
        raise InspectionError(f"config.json does not match the weights: {problem}. One of them is from another model.")
    quantization = config.get("quantization_config")
    architectures = config.get("architectures")
    return {
        "architecture": architectures[0] if isinstance(architectures, list) and architectures else None,
        "model_type": config.get("model_type"),
        "config": {key: value for key in _CONFIG_KEYS if (value := text_config.get(key, config.get(key))) is not None},
        "context_length": next(
            (int(text_config[key]) for key in _CONTEXT_KEYS if isinstance(text_config.get(key), int)), None
        ),
        "quantization": quantization.get("quant_method") if isinstance(quantization, dict) else None,
        "custom_code": bool(config.get("auto_map")),
        **{name: sizes[name] for name in ("heads", "kv_heads", "layers", "hidden")},
        **tokenizer,
        "parameters": weights.parameters,
        "dtype": max(weights.dtypes, key=lambda name: weights.dtypes[name]) if weights.dtypes else None,
        "dtypes": weights.dtypes,
        "bytes": weights.size,
        "linear_modules": weights.modules,
    }


def _config(files: ModelFiles) -> dict[str, Any]:
    if files.exists("config.json"):
        return files.json("config.json")
    if files.exists("adapter_config.json"):
        raise InspectionError(
            f"The {files.container} contains a LoRA adapter, not a model. Merge it into its base model first."
        )
    raise InspectionError(f"The {files.container} has no config.json, so it is not a model in the Hugging Face layout.")


def _sizes(config: Mapping[str, Any]) -> dict[str, int | None]:
    sizes = {name: _size(config, keys) for name, keys in _SIZES.items()}
    if sizes["kv_heads"] is None:
        sizes["kv_heads"] = 1 if config.get("multi_query") is True else sizes["heads"]
    heads, kv_heads = sizes["heads"], sizes["kv_heads"]
    if heads and kv_heads and heads % kv_heads:
        raise InspectionError(
            f"config.json sets {heads} attention heads, which is not a multiple of {kv_heads} key-value heads."
        )
    return sizes


def _size(config: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    key = next((key for key in keys if config.get(key) is not None), None)
    value = config[key] if key else None
    if value is None or isinstance(value, list | dict):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MAX_SIZE:
        raise InspectionError(f"config.json sets {key} to {str(value)[:40]!r}, which is not a valid size.")
    return value


def _tokenizer(files: ModelFiles) -> dict[str, Any]:
    if not any(files.exists(name) for name in TOKENIZERS):
        raise InspectionError(
            f"The {files.container} has no tokenizer (tokenizer.json, tokenizer.model or a vocabulary)."
        )
    settings = files.json("tokenizer_config.json") if files.exists("tokenizer_config.json") else {}
    has_file = files.exists("chat_template.jinja") or files.exists("chat_template.json")
    return {
        "tokenizer": settings.get("tokenizer_class"),
        "eos_token": _token(settings.get("eos_token")),
        "pad_token": _token(settings.get("pad_token")),
        "chat_template": has_file or bool(settings.get("chat_template")),
        "prompt_opens": opened_tag(_template(files, settings)),
    }


def _template(files: ModelFiles, settings: Mapping[str, Any]) -> str:
    """Return the text of the chat template, or "" if there is none, or several."""
    if files.exists("chat_template.jinja"):
        return files.content("chat_template.jinja", limit=_TEMPLATE_LIMIT).decode(errors="replace")
    stored_settings = files.json("chat_template.json") if files.exists("chat_template.json") else settings
    templates = stored_settings.get("chat_template")
    if isinstance(templates, list):
        templates_by_name = {part.get("name"): part.get("template") for part in templates if isinstance(part, dict)}
        templates = templates_by_name.get("default")
    return templates if isinstance(templates, str) else ""


def opened_tag(template: str) -> str:
    """Return the tag that a chat template opens at the end of a generation prompt, such as think, or "" for none."""
    _, condition, ending = template.rpartition("add_generation_prompt")
    tags = _OPENED_TAG.findall(ending) if condition else []
    return tags[-1] if tags else ""


def _token(value: Any) -> str | None:
    token = value.get("content") if isinstance(value, dict) else value
    return token if isinstance(token, str) else None


# --- Comparing the config with the weights ----------------------------------------------------------------------------
# Each function describes how the weights contradict the config; "" if they agree or can't be compared. Models with
# several parts have several embeddings and towers, of which one must agree.


def _embedding_problem(config: Mapping[str, Any], vocab: int | None, hidden: int | None, weights: Weights) -> str:
    shapes = [shape for name, shape in weights.shapes.items() if _EMBEDDING.search(name) and len(shape) == 2]
    special = config.get("embedding_size") or config.get("word_embed_proj_dim") or config.get("quantization_config")
    if not shapes or vocab is None or hidden is None or special or [vocab, hidden] in shapes:
        return ""
    return f"it says {vocab} tokens of {hidden} numbers, but the embedding is {_times(shapes[0])}"


def _layers_problem(config: Mapping[str, Any], layers: int | None, weights: Weights) -> str:
    indexes: dict[str, set[int]] = {}
    for name in weights.names:
        if match := _LAYER.match(name):
            indexes.setdefault(match[1], set()).add(int(match[2]))
    counts = sorted({len(numbers) for numbers in indexes.values()}, reverse=True)
    extra_layers = next((value for key in _EXTRA_LAYERS if isinstance(value := config.get(key), int)), 0)
    if not counts or layers is None or layers in counts or layers + extra_layers in counts:
        return ""
    return f"it says {layers} layers, but there are {counts[0]}"


def _attention_problem(config: Mapping[str, Any], sizes: Mapping[str, int | None], weights: Weights) -> str:
    hidden, heads, kv_heads = sizes["hidden"], sizes["heads"], sizes["kv_heads"]
    if (
        config.get("model_type") not in _PLAIN_ATTENTION
        or config.get("quantization_config")
        or not (hidden and heads and kv_heads)
    ):
        return ""
    stated_size = config.get("head_dim")
    if not stated_size and str(config["model_type"]).startswith(_CONSTANT_HEAD_SIZE):
        return ""
    head_size = stated_size if isinstance(stated_size, int) and stated_size > 0 else hidden // heads
    for module, count, title in (("q_proj", heads, "attention heads"), ("k_proj", kv_heads, "key-value heads")):
        shapes = [s for n, s in weights.shapes.items() if n.endswith(f".self_attn.{module}.weight") and len(s) == 2]
        if shapes and [count * head_size, hidden] not in shapes:
            claim = f"{count} {title} of {head_size} in a hidden size of {hidden}"
            return f"it says {claim}, but {module} is {_times(shapes[0])}"
    return ""


def _times(shape: Iterable[int]) -> str:
    return " × ".join(str(number) for number in shape)
