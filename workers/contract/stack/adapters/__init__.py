"""vLLM's speed with a LoRA adapter: kernels tuned for a GPU model, and measured tokens per second.

kernels/VLLM-VERSION/ holds configs of vLLM's shrink and expand kernels in vLLM's own files, a set for each GPU model;
`python -m tests.gpu.lora_kernels` makes them. speed.json holds what `python -m tests.gpu.lora` measured.
"""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from pathlib import Path

from workers.contract.wire.documents import from_dict

ADAPTERS_FOLDER = Path(__file__).parent
KERNELS = ADAPTERS_FOLDER / "kernels"
SPEED = ADAPTERS_FOLDER / "speed.json"
MAX_DISTANCE = 0.5
"""Largest distance to a measured model, in doublings of the number of parameters."""


@dataclass(frozen=True)
class Speed:
    """Measured speed of one engine with all requests of a step at the same time; None where it wasn't measured."""

    card: str
    vllm: str
    parameters: int
    rank: int
    requests: int
    base_tokens_per_s: float | None = None
    """Tokens per second of the model without an adapter, and so of merged weights."""
    plain_tokens_per_s: float | None = None
    """Tokens per second with an adapter and vLLM's own kernel configs."""
    tuned_tokens_per_s: float | None = None
    """Tokens per second with an adapter and the kernel configs of KERNELS."""
    swap_s: float | None = None
    """Seconds to load an adapter and unload the previous one."""
    push_s: float | None = None
    """Seconds to merge an adapter into the weights and stream them by NCCL."""

    def adapter_tokens_per_s(self, *, tuned: bool) -> float | None:
        return self.tuned_tokens_per_s if tuned and self.tuned_tokens_per_s else self.plain_tokens_per_s


@functools.cache
def speeds() -> tuple[Speed, ...]:
    return tuple(from_dict(Speed, entry) for entry in json.loads(SPEED.read_text(encoding="utf-8")))


def speed_of(cards: Iterable[str], parameters: int, rank: int, requests: int) -> Speed | None:
    """Find a similar model's speed with this rank on one of the `cards`, at the nearest `requests`."""
    measurements = [speed for speed in speeds() if speed.card in set(cards) and speed.rank == rank]
    similar = [speed for speed in measurements if abs(log2(speed.parameters / max(parameters, 1))) <= MAX_DISTANCE]
    return min(similar, key=lambda speed: abs(log2(speed.requests / max(requests, 1))), default=None)


def kernels(card: str, vllm: str) -> Path | None:
    """Find the folder for VLLM_TUNED_CONFIG_FOLDER; return None if this vLLM's kernels weren't tuned on this GPU
    model."""
    folder = KERNELS / vllm.partition("+")[0]
    return folder if vllm and (folder / f"{file_name(card)}_SHRINK.json").is_file() else None


def file_name(card: str) -> str:
    """Return a GPU's name as vLLM writes it in file names."""
    return card.replace(" ", "_").replace("-", "_")
