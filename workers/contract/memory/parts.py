"""What an estimate consists of, and the settings that decide it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from workers.contract.run.hardware import Optimizer, Precision
from workers.contract.run.spec import LoraSpec


class Part(StrEnum):
    """In the order in which a bar stacks them; each value is the name that pages show."""

    WEIGHTS = "weights"
    REFERENCE = "reference model"
    OPTIMIZER = "optimizer states"
    GRADIENTS = "gradients"
    ADAPTER = "LoRA"
    COPIES = "16-bit copies of the weights"
    ACTIVATIONS = "activations"
    LOGITS = "output layer"
    GENERATION = "generation's KV cache"
    COMMUNICATION = "communication"
    ALLOCATOR = "allocator's slack"
    CONTEXT = "CUDA context"
    VLLM = "vLLM"


Parts = dict[Part, float]
"""GiB by part; zeros left out."""


@dataclass(frozen=True)
class Settings:
    """What of a run's settings decides its memory."""

    batch: int
    """Completions per process in one pass."""
    prompt_tokens: int
    completion_tokens: int
    passes: int = 1
    """Passes whose gradients are added up."""
    generated: int = 0
    """Completions that the process generates at a time by itself; 0: vLLM generates them."""
    reference: bool = False
    """β > 0."""
    lora: LoraSpec | None = None
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    checkpointing: bool = True

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Peak:
    phase: str
    parts: Parts = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.parts.values())
