"""Parts of a memory estimate, and the settings that determine them."""

from dataclasses import dataclass, field
from enum import StrEnum

from workers.contract.run.hardware import Optimizer, Precision
from workers.contract.run.spec import LoraSpec


class Part(StrEnum):
    """Parts of a GPU's memory in the order in which a bar stacks them; each value is the name on pages."""

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
"""GiB by part, without the parts that are 0."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run that determine its memory."""

    batch: int
    prompt_tokens: int
    completion_tokens: int
    passes: int = 1
    generated: int = 0
    """Completions that the trainer process generates at a time; 0 if vLLM generates them."""
    reference: bool = False
    """True for β > 0, which loads a reference model."""
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
