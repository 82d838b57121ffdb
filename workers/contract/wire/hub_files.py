"""Files of a hub repository: which ones a run needs, whether a folder is complete, and messages when they are
unavailable. Standard library only: the host's inspection and the trainer's download share the list and the messages."""

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

WANTED_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "*.py")
"""Weights, configuration, tokenizer and template. Pickles (.bin, .pt …) are never downloaded: they can contain code."""
UNWANTED_FILES = ("*/*.safetensors", "consolidated*.safetensors", "original/*", "onnx/*", "openvino/*", "coreml/*")
"""Duplicates of the weights in another format or precision."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NEWEST = "main"
REVISION = r"(?!.*\.\.)\w[\w./-]{0,199}"
"""Pattern of a branch, tag or commit. Git doesn't allow two consecutive dots."""
INDEX = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"

ONLY_PICKLES = "The weights are pickles (.bin), which can contain code. Convert them to safetensors."


def is_needed(name: str) -> bool:
    return _matches(name, WANTED_FILES) and not _matches(name, UNWANTED_FILES)


def refusal(names: Iterable[str]) -> str:
    """Explain why a repository with these files isn't a trainable model; return "" if it is one."""
    listed_names = set(names)
    if "config.json" not in listed_names:
        if "adapter_config.json" in listed_names:
            return "The repository has a LoRA adapter, not a model. Merge it into its base model first."
        return "The repository has no config.json, so it is not a model in the Hugging Face layout."
    if listed_names & {SINGLE_FILE, INDEX}:
        return ""
    if any(_matches(name, PICKLES) for name in listed_names):
        return ONLY_PICKLES
    if any(name.endswith(".gguf") for name in listed_names):
        return "The repository has only GGUF files, which are made for inference. Choose the model they were made from."
    return "The repository has no weights (model.safetensors)."


def missing_revision_message(model: str, revision: str, hub: str) -> str:
    return f"{model} has no revision {revision} on {hub}."


def missing_message(model: str, hub: str) -> str:
    """Return the error for a model that the hub doesn't show; private and missing ones can't be told apart."""
    return f"There is no model {model} on {hub}, or it is private and this host has no token with access to it."


def gated_message(model: str, hub: str, *, has_token: bool) -> str:
    if has_token:
        return (
            f"{model} is gated, and the account of this host's token may not download it. Accept its terms at "
            f"{hub}/{model} with that account."
        )
    return (
        f"{model} is gated. Accept its terms at {hub}/{model}, and give the host a token of that account "
        f"(in the file that GRPO_HF_TOKEN_FILE names)."
    )


def invalid_token_message(hub: str) -> str:
    return f"{hub} does not accept this host's token. Give the host a valid one."


def is_complete(folder: Path) -> bool:
    """Return whether a snapshot folder has everything a run loads: configuration, a tokenizer and all weight files."""
    if not (folder / "config.json").exists() or not any((folder / name).exists() for name in TOKENIZERS):
        return False
    if (folder / SINGLE_FILE).exists():
        return True
    try:
        weight_map = json.loads((folder / INDEX).read_bytes())["weight_map"]
        return all((folder / str(name)).exists() for name in set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
