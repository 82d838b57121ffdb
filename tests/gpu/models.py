"""Models with random weights in the shapes of real ones: they cost what real ones cost, and nothing is downloaded.

`python -m tests.gpu.models FOLDER SHAPE...` writes FOLDER/<shape>/ as any Qwen2 model folder: bf16 safetensors in
shards, config, a byte-level BPE tokenizer trained on the spot, a chat template. One of 152,000 random tokens is the
end, so completions run to their limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VOCABULARY = 151_936
MERGED = 2_000
"""Entries that the tokenizer learns; the rest of the vocabulary are words that only sampling ever meets."""
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SHARD_BYTES = 2 << 30
SPREAD = 0.02
CONTEXT = 8192

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = (
    "What is seven plus five? Think first, then answer with a number alone.",
    "A train leaves at nine and arrives at noon; how long does it take?",
    "Compute the sum of the first ten whole numbers. Explain every step.",
    "user assistant system 0 1 2 3 4 5 6 7 8 9 10 100 1000 plus minus times divided by equals",
)


@dataclass(frozen=True)
class Shape:
    """Qwen2's, by the names of its config."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    tie_word_embeddings: bool = True
    vocab_size: int = VOCABULARY

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


SHAPES = {
    "0.5b": Shape(896, 24, 14, 2, 4864),
    "1.5b": Shape(1536, 28, 12, 2, 8960),
    "3b": Shape(2048, 36, 16, 2, 11008),
    "7b": Shape(3584, 28, 28, 4, 18944, tie_word_embeddings=False),
    "20b": Shape(6144, 44, 48, 8, 16384, tie_word_embeddings=False),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.models", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("shapes", nargs="+", choices=SHAPES)
    options = parser.parse_args(argv)
    for name in options.shapes:
        folder = options.folder / name
        if not (folder / "config.json").exists():
            started = time.monotonic()
            make(folder, SHAPES[name])
            print(f"{name}: {parameters(SHAPES[name]):,} parameters, {time.monotonic() - started:.1f} s", flush=True)
    return 0


def make(folder: Path, shape: Shape, *, seed: int = 0) -> None:
    """The config goes last: a folder without one is no model yet."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(shape.vocab_size)
    tokenizer.save_pretrained(folder)
    _write_weights(folder, shape, seed)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    _write_json(folder / "generation_config.json", {**ids, "bos_token_id": None, "transformers_version": "5.17.0"})
    _write_json(folder / "config.json", {**_config(shape), **ids})


def make_config(folder: Path, shape: Shape) -> None:
    """A model's folder without weights and tokenizer, for an engine that draws its own weights."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", {**_config(shape), "pad_token_id": None, "eos_token_id": shape.vocab_size - 1})


def parameters(shape: Shape) -> int:
    total = 0
    for _, size in tensors(shape):
        count = 1
        for side in size:
            count *= side
        total += count
    return total


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor of the checkpoint by Qwen2's names."""
    hidden, middle, kv = shape.hidden_size, shape.intermediate_size, shape.num_key_value_heads * shape.head_dim
    yield "model.embed_tokens.weight", (shape.vocab_size, hidden)
    for layer in range(shape.num_hidden_layers):
        at = f"model.layers.{layer}"
        for name, rows in (("q_proj", hidden), ("k_proj", kv), ("v_proj", kv)):
            yield f"{at}.self_attn.{name}.weight", (rows, hidden)
            yield f"{at}.self_attn.{name}.bias", (rows,)
        yield f"{at}.self_attn.o_proj.weight", (hidden, hidden)
        yield f"{at}.mlp.gate_proj.weight", (middle, hidden)
        yield f"{at}.mlp.up_proj.weight", (middle, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, middle)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not shape.tie_word_embeddings:
        yield "lm_head.weight", (shape.vocab_size, hidden)


def _write_weights(folder: Path, shape: Shape, seed: int) -> None:
    """Drawn on the GPU where there is one: a second instead of a minute."""
    import torch
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator(device=device).manual_seed(seed)
    shards: list[dict[str, Any]] = [{}]
    held = 0
    for name, size in tensors(shape):
        tensor = torch.empty(size, dtype=torch.bfloat16, device=device)
        if name.endswith("norm.weight"):
            tensor.fill_(1.0)
        elif name.endswith(".bias"):
            tensor.zero_()
        else:
            tensor.normal_(std=SPREAD, generator=draw)
        if held + tensor.nbytes > SHARD_BYTES and shards[-1]:
            shards.append({})
            held = 0
        shards[-1][name] = tensor.cpu()
        held += tensor.nbytes
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(shard, str(folder / file), metadata={"format": "pt"})
        where |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})


def make_tokenizer(size: int = VOCABULARY) -> Any:
    """Qwen2's own class, as AutoTokenizer makes that one of a Qwen2 model's folder, with all of `size` ids in use."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import Qwen2Tokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXT, vocab_size=MERGED, min_frequency=1, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    vocabulary = dict(model["vocab"])
    special = (PAD, START, END)
    for number in range(len(vocabulary), size - len(special)):
        vocabulary[f"Ġw{number}"] = number  # byte-level for " w123": readable when it is sampled
    vocabulary |= {token: size - len(special) + place for place, token in enumerate(special)}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in model["merges"]],
        pad_token=PAD,
        eos_token=END,
        unk_token=PAD,
        extra_special_tokens=[START],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **asdict(shape),
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "initializer_range": SPREAD,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1_000_000.0, "rope_type": "default"},
        "use_cache": True,
        "use_sliding_window": False,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "transformers_version": "5.17.0",
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
