"""Estimates of a draft's memory on each host, by workers.contract.memory."""

import math
from dataclasses import dataclass
from typing import Any

from runs.launch.preflight.draft import DataFacts, Draft, HostFacts
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.memory import Estimate, estimate
from workers.contract.memory.parts import Settings
from workers.contract.memory.shapes import Shape, shape_of
from workers.contract.run.hardware import HardwareSpec, Optimizer, Rollout, precision_of

CHARS_PER_TOKEN = 3.5
"""Characters per token of English and code, for a dataset that no tokenizer has counted."""
TEMPLATE_TOKENS = 30
USUAL_PROMPT_TOKENS = 256
OPTIMIZERS = {
    "adamw_8bit": Optimizer.ADAMW_8BIT,
    "adamw_bnb_8bit": Optimizer.ADAMW_8BIT,
    "paged_adamw_8bit": Optimizer.ADAMW_8BIT,
    "adafactor": Optimizer.ADAFACTOR,
}
"""TRL's `optim` -> the same optimizer in a profile."""


@dataclass(frozen=True)
class HostEstimate:
    host: HostFacts
    estimate: Estimate
    settings: Settings
    indexes: tuple[int, ...]

    @property
    def needed(self) -> list[float]:
        """GiB needed on each GPU, without what the allocator can give back."""
        return [gpu.needed for gpu in self.estimate.gpus]

    @property
    def missing(self) -> float:
        """Largest shortage of any GPU, in GiB; at most 0 if everything fits."""
        cards = (gpu.card_gib for gpu in self.estimate.gpus)
        return max((need - card for need, card in zip(self.needed, cards, strict=True)), default=0.0)

    @property
    def fits(self) -> bool:
        return self.missing <= 0


def shape_for(inspection: dict[str, Any] | None) -> Shape | None:
    """Return the inspected model's shape, or None if it isn't known or the weights are quantized."""
    facts = inspection or {}
    if facts.get("ok") is False or facts.get("quantization"):
        return None
    parameters = facts.get("parameters")
    is_counted = isinstance(parameters, int) and not isinstance(parameters, bool) and parameters > 0
    return shape_of(facts) or (_typical_shape(int(parameters or 0)) if is_counted else None)


def _typical_shape(parameters: int) -> Shape:
    """Derive the shape of a common decoder with this many parameters, for a config without sizes."""
    layers = max(1, round(28 * (parameters / 7e9) ** 0.3))
    hidden_size = max(16, round(math.sqrt(parameters / (14 * layers))))
    embedding = min(32_000 * hidden_size, parameters // 2)
    return Shape(
        hidden=hidden_size,
        layers=layers,
        query=hidden_size,
        key=hidden_size // 4,
        inner=4 * hidden_size,
        vocab=embedding // hidden_size,
        embedding=embedding,
        head=0,
        linear=parameters - embedding,
    )


def settings_of(draft: Draft, hardware: HardwareSpec) -> Settings:
    batch, accumulation = _number(draft, "per_device_train_batch_size"), _number(draft, "gradient_accumulation_steps")
    per_generation = draft.value("steps_per_generation")
    generated = batch * (per_generation if isinstance(per_generation, int) else accumulation)
    checkpointing = draft.grpo.get("gradient_checkpointing", hardware.gradient_checkpointing)
    return Settings(
        batch=batch,
        prompt_tokens=prompt_tokens(draft.data),
        completion_tokens=_number(draft, "max_completion_length") + draft.result_tokens,
        passes=accumulation,
        generated=generated if hardware.rollout is Rollout.TRANSFORMERS else 0,
        reference=bool(draft.value("beta")),
        lora=draft.lora,
        precision=precision_of(hardware, draft.grpo),
        optimizer=_optimizer(draft, hardware),
        checkpointing=checkpointing is not False,
    )


def _optimizer(draft: Draft, hardware: HardwareSpec) -> Optimizer:
    """Return the run's own optimizer, otherwise the profile's. One that isn't listed is treated as AdamW."""
    optimizer = draft.grpo.get("optim")
    return hardware.optimizer if not optimizer else OPTIMIZERS.get(str(optimizer), Optimizer.ADAMW)


def _number(draft: Draft, name: str) -> int:
    value = draft.value(name)
    return max(value, 1) if isinstance(value, int) and not isinstance(value, bool) else 1


def prompt_tokens(data: DataFacts | None) -> int:
    """Estimate the tokens of the longest prompt, to whose length a batch is padded."""
    if data and data.longest_prompt_tokens:
        return data.longest_prompt_tokens
    if data and data.longest_prompt_chars:
        return math.ceil(data.longest_prompt_chars / CHARS_PER_TOKEN) + TEMPLATE_TOKENS
    return USUAL_PROMPT_TOKENS


def on_host(draft: Draft, hardware: HardwareSpec, shape: Shape, host: HostFacts) -> HostEstimate:
    """Estimate the memory on the host's largest GPUs, free ones first, or on those that the profile names."""
    servers = hardware.server_gpus
    ordered_gpus = sorted(host.gpus, key=lambda gpu: (not gpu.free, -gpu.memory_mib, gpu.index))
    sizes = {gpu.index: gpu.memory_mib / 1024 for gpu in host.gpus}
    pinned = hardware.trainer_gpu_ids
    trainer_gpus = [index for index in pinned if index in sizes] or [
        gpu.index for gpu in ordered_gpus[: hardware.trainer_gpus]
    ]
    other_gpus = [gpu.index for gpu in ordered_gpus if gpu.index not in trainer_gpus]
    server = hardware.vllm_server
    server_gpus = [index for index in (server.gpu_ids if server else ()) if index in sizes] or other_gpus[:servers]
    settings = settings_of(draft, hardware)
    result = estimate(
        shape,
        hardware,
        settings,
        cards=[sizes[index] for index in trainer_gpus],
        servers=[sizes[index] for index in server_gpus[:servers]],
    )
    return HostEstimate(host, result, settings, (*trainer_gpus, *server_gpus[:servers]))


def on_each_host(draft: Draft) -> list[HostEstimate]:
    """Estimate the memory on each host with the profile's GPUs; return [] without GPUs or for an unknown model size."""
    hardware, shape = draft.hardware, shape_for(draft.inspection)
    if hardware is None or shape is None or hardware.trainer_gpus < 1:
        return []
    try:
        return [on_host(draft, hardware, shape, host) for host in fitting_hosts(draft) if host.gpus]
    except (ArithmeticError, ValueError):  # from a profile that makes no sense, which other checks report
        return []


def best_estimate(draft: Draft) -> HostEstimate | None:
    return min(on_each_host(draft), key=lambda estimated: estimated.missing, default=None)
