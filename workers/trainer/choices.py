"""What TRL checks late or not at all: enums that fail only once the model is loaded, and numbers out of range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHOICES: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "vllm_model_impl": ("vllm", "transformers"),
}


@dataclass(frozen=True)
class Bounds:
    low: float | None = None
    high: float | None = None
    above_low: bool = False
    """`low` itself is not allowed."""


BOUNDS: dict[str, Bounds] = {
    "temperature": Bounds(0, above_low=True),
    "top_p": Bounds(0, 1, above_low=True),
    "top_k": Bounds(0),
    "min_p": Bounds(0, 1),
    "repetition_penalty": Bounds(0, above_low=True),
    "learning_rate": Bounds(0),
    "beta": Bounds(0),
    "epsilon": Bounds(0),
    "epsilon_high": Bounds(0),
    "max_completion_length": Bounds(1),
    "num_iterations": Bounds(1),
    "per_device_train_batch_size": Bounds(1),
    "per_device_eval_batch_size": Bounds(1),
    "gradient_accumulation_steps": Bounds(1),
    "steps_per_generation": Bounds(1),
    "top_entropy_quantile": Bounds(0, 1),
    "ref_model_mixup_alpha": Bounds(0, 1),
}


def problem(settings: Mapping[str, Any]) -> str | None:
    """The first setting that TRL would only stumble over later, as a sentence."""
    for name, value in settings.items():
        if name in CHOICES and not isinstance(value, bool) and value not in CHOICES[name]:
            return f"{name} must be one of {', '.join(CHOICES[name])}, not {value!r}."
        if name in BOUNDS and isinstance(value, int | float) and (wrong := _outside(BOUNDS[name], value)):
            return f"{name} must be {wrong}, not {value!r}."
    return None


def _outside(bounds: Bounds, value: float) -> str | None:
    if bounds.low is not None and (value < bounds.low or (bounds.above_low and value == bounds.low)):
        return f"above {bounds.low}" if bounds.above_low else f"at least {bounds.low}"
    if bounds.high is not None and value > bounds.high:
        return f"at most {bounds.high}"
    return None
