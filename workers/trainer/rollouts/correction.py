"""The importance sampling correction for vLLM: how much of a batch it truncates or masks, and sampling without it."""

from collections.abc import Mapping
from typing import Any

import torch

from workers.contract.run.overlapping import TRUNCATED

MASKED = "sampling/share_masked"


def beyond(
    output: Mapping[str, Any], *, mode: str, low: float | None, high: float | None
) -> tuple[str, torch.Tensor] | None:
    """Count (metric, [clipped, all] of this rank), in tokens that the model wrote or, by `mode`, in sequences.

    None without a correction. `output`: TRL's, of a generation. Masking modes have set ratios beyond a bound to 0,
    truncating modes to the bound.
    """
    ratio = output.get("importance_sampling_ratio")
    if ratio is None:
        return None
    own = written(output)
    counted = own if ratio.shape == own.shape else torch.ones_like(ratio)
    if mode.endswith("_mask"):
        name, cut = MASKED, ratio == 0
    else:
        name, cut = TRUNCATED, torch.zeros_like(ratio, dtype=torch.bool)
        if high is not None:
            cut = cut | (ratio >= high)
        if low is not None:
            cut = cut | (ratio <= low)
    return name, torch.stack([(cut * counted).sum().float(), counted.sum().float()])


def written(batch: Mapping[str, Any]) -> torch.Tensor:
    """Mark each token that the model wrote with 1. `batch`: TRL's output of a generation, or a part of it."""
    mask: torch.Tensor = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def leave_out_logprobs(generation: Any) -> None:
    """Let vLLM compute no log-probabilities: they halve its speed (1.5B on an H100, 1,024 completions at once). TRL
    expects some, but doesn't use them here."""
    generate = generation.generate

    def generated(*args: Any, **kwargs: Any) -> Any:
        prompts, completions, _, _ = generate(*args, **kwargs)
        return prompts, completions, [[[0.0]] * len(tokens) for tokens in completions], None

    generation.logprobs = None
    generation.generate = generated
