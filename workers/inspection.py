"""What a model on this host is, from its files alone: config, tokenizer, chat template, safetensors headers.

Standard library only, and nothing is executed or unpickled. A local path must lie inside the host's allowed roots,
after every symbolic link is followed; a hub id is looked up in the local cache.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JSON_LIMIT = 64 << 20
HEADER_LIMIT = 100 << 20
SHARDS_LIMIT = 1_000
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_NOT_LINEAR = re.compile(r"embed|norm|\bwte\b|\bwpe\b", re.IGNORECASE)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_CONFIG_KEYS = (
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "tie_word_embeddings",
    "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "sliding_window",
)  # fmt: skip


class InspectionError(Exception):
    """The model can't be used; the message is for the person who named it."""


def inspect(model: str, roots: Sequence[Path]) -> dict[str, Any]:
    """The answer to an inspection: `ok` and the facts, or `ok: false` and an `error`."""
    try:
        folder, source = find(model, roots)
        if folder is None:
            return {"ok": True, "hub": True, "source": "hub", "chat_template": None}
        return {"ok": True, "hub": False, "source": source, "path": str(folder), **_facts(_Files(folder, roots))}
    except InspectionError as error:
        return {"ok": False, "error": str(error)}
    except OSError as error:
        return {"ok": False, "error": f"{model} cannot be read: {error.strerror or error}."}


def find(model: str, roots: Sequence[Path]) -> tuple[Path | None, str]:
    """The model's folder and where it was found; None for a hub id that no cache holds."""
    if is_local(model):
        return inside(Path(model), roots), "path"
    if not _HUB_ID.fullmatch(model) or len(model) > 200:
        raise InspectionError(f"{model!r} is neither an absolute path nor a hub id such as Qwen/Qwen3-0.6B.")
    return _cached(model), "cache"


def is_local(model: str) -> bool:
    return os.path.isabs(model) or model.startswith(("./", "../", "~"))


def inside(path: Path, roots: Sequence[Path]) -> Path:
    """The real folder of a local path, if it lies in one of the roots."""
    if not path.is_absolute() or "\0" in str(path):
        raise InspectionError(f"{path} is not an absolute path.")
    real = Path(os.path.realpath(path))
    allowed = [Path(os.path.realpath(root)) for root in roots]
    if not any(real.is_relative_to(root) for root in allowed):
        # The same words for what exists and what doesn't: outside the roots nothing is told.
        where = ", ".join(str(root) for root in roots) or "none is set on this host"
        raise InspectionError(f"{path} is not inside the host's model folders ({where}).")
    if not real.is_dir():
        raise InspectionError(f"There is no folder {path} on this host.")
    return real


def cache_folder() -> Path:
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def _cached(model: str) -> Path | None:
    folder = cache_folder() / f"models--{model.replace('/', '--')}"
    snapshots = folder / "snapshots"
    try:
        revision = (folder / "refs" / "main").read_text().strip()
    except FileNotFoundError:
        revision = ""
    if revision and "/" not in revision and (snapshots / revision / "config.json").exists():
        return snapshots / revision
    found = sorted(path.parent for path in snapshots.glob("*/config.json"))
    return found[-1] if found else None


class _Files:
    """Reads files of one model folder; a link that leaves the roots (or the model's part of the cache) is refused."""

    def __init__(self, folder: Path, roots: Sequence[Path]) -> None:
        self.folder = folder
        allowed = (folder, *roots, cache_folder())
        self._allowed = [os.path.realpath(root) for root in allowed]

    def path(self, name: str) -> Path:
        real = os.path.realpath(self.folder / name)
        if not any(os.path.commonpath([root, real]) == root for root in self._allowed):
            raise InspectionError(f"{name} is a link that leaves the host's model folders.")
        return Path(real)

    def exists(self, name: str) -> bool:
        return self.path(name).is_file()

    def json(self, name: str) -> dict[str, Any]:
        path = self.path(name)
        if path.stat().st_size > JSON_LIMIT:
            raise InspectionError(f"{name} is larger than {JSON_LIMIT >> 20} MiB.")
        try:
            value = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise InspectionError(f"{name} is not JSON: {error}.") from None
        if not isinstance(value, dict):
            raise InspectionError(f"{name} holds no JSON object.")
        return value


def _facts(files: _Files) -> dict[str, Any]:
    config = _config(files)
    text = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    return {
        "architecture": next(iter(config.get("architectures") or []), None),
        "model_type": config.get("model_type"),
        "config": {key: value for key in _CONFIG_KEYS if (value := text.get(key, config.get(key))) is not None},
        "context_length": _context_length(text),
        "quantization": (config.get("quantization_config") or {}).get("quant_method"),
        "custom_code": bool(config.get("auto_map")),
        **_tokenizer(files),
        **_weights(files),
    }


def _config(files: _Files) -> dict[str, Any]:
    if files.exists("config.json"):
        return files.json("config.json")
    if files.exists("adapter_config.json"):
        raise InspectionError("The folder holds a LoRA adapter, not a model: merge it into its base model first.")
    raise InspectionError("The folder has no config.json: it is not a model in the Hugging Face layout.")


def _context_length(config: dict[str, Any]) -> int | None:
    for key in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(config.get(key), int):
            return int(config[key])
    return None


def _tokenizer(files: _Files) -> dict[str, Any]:
    if not any(files.exists(name) for name in _TOKENIZERS):
        raise InspectionError("The folder has no tokenizer (tokenizer.json, tokenizer.model or a vocabulary).")
    settings = files.json("tokenizer_config.json") if files.exists("tokenizer_config.json") else {}
    has_file = files.exists("chat_template.jinja") or files.exists("chat_template.json")
    return {
        "tokenizer": settings.get("tokenizer_class"),
        "eos_token": _token(settings.get("eos_token")),
        "pad_token": _token(settings.get("pad_token")),
        "chat_template": has_file or bool(settings.get("chat_template")),
    }


def _token(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _weights(files: _Files) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    size = 0
    modules: set[str] = set()
    for name in _shards(files):
        for tensor, (dtype, shape, length) in _header(files, name).items():
            counts[dtype] += math.prod(shape)
            size += length
            module = tensor.removesuffix(".weight").rsplit(".", 1)[-1]
            if len(shape) == 2 and tensor.endswith(".weight") and not _NOT_LINEAR.search(tensor):
                modules.add(module)
    return {
        "parameters": sum(counts.values()),
        "dtype": counts.most_common(1)[0][0] if counts else None,
        "dtypes": dict(counts),
        "bytes": size,
        "linear_modules": sorted(modules),
    }


def _shards(files: _Files) -> list[str]:
    if files.exists("model.safetensors"):
        return ["model.safetensors"]
    if not files.exists("model.safetensors.index.json"):
        if any(path for pattern in _PICKLES for path in files.folder.glob(pattern)):
            raise InspectionError("The weights are pickles (.bin), which can hold code: convert them to safetensors.")
        raise InspectionError("The folder has no weights (model.safetensors).")
    weight_map = files.json("model.safetensors.index.json").get("weight_map")
    names = sorted({str(name) for name in weight_map.values()}) if isinstance(weight_map, dict) else []
    if not names or len(names) > SHARDS_LIMIT:
        raise InspectionError("model.safetensors.index.json names no weights.")
    missing = [name for name in names if not files.exists(name)]
    if missing:
        raise InspectionError(f"{len(missing)} of {len(names)} weight files are missing, the first is {missing[0]}.")
    return names


def _header(files: _Files, name: str) -> dict[str, tuple[str, list[int], int]]:
    """Tensor name -> (dtype, shape, bytes); also checks that the file is as long as its header says."""
    path = files.path(name)
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(HEADER_LIMIT, size - 8):
            raise InspectionError(f"{name} is no safetensors file, or it is cut short.")
        try:
            header = json.loads(file.read(length))
            tensors = {
                tensor: (str(entry["dtype"]), [int(n) for n in entry["shape"]], entry["data_offsets"])
                for tensor, entry in header.items()
                if tensor != "__metadata__"
            }
            end = max((int(offsets[1]) for _, _, offsets in tensors.values()), default=0)
            found = {k: (dtype, shape, int(o[1]) - int(o[0])) for k, (dtype, shape, o) in tensors.items()}
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise InspectionError(f"{name} has a header that is no safetensors header.") from None
    if 8 + length + end > size:
        raise InspectionError(f"{name} is cut short: {size} of {8 + length + end} bytes are there.")
    return found
