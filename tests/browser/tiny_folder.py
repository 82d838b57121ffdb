"""A model folder in the Hugging Face layout, just enough for a host to say what it is."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def write_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 64, "hidden_size": 8}
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    (folder / "tokenizer.json").write_text("{}")
    tokenizer = {"eos_token": "<|end|>", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    tensor = {"model.layers.0.self_attn.q_proj.weight": {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]}}
    header = json.dumps(tensor).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(256))
