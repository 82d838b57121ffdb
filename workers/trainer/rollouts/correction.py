"""The importance sampling correction for vLLM: how much of a batch it clips, and how to sample without it."""

from collections.abc import Mapping
from typing import Any

import torch

from workers.contract.run.overlapping import TRUNCATED

SHARE_MASKED = "sampling/share_masked"


def clipped_counts(
    output: Mapping[str, Any], *, mode: str, low: float | None, high: float | None
) -> tuple[str, torch.Tensor] | None:
    """Return (metric, [number clipped, total] of this rank), in tokens that the model generated or, depending on
    `mode`, in sequences, or None without a correction. `output`: TRL's output of a generation. Masking modes have set
    ratios beyond a bound to 0, truncating modes to the bound."""
    ratio = output.get("importance_sampling_ratio")
    if ratio is None:
        return None
    own_mask = own_token_mask(output)
    counted_mask = own_mask if ratio.shape == own_mask.shape else torch.ones_like(ratio)
    if mode.endswith("_mask"):
        name, clipped = SHARE_MASKED, ratio == 0
    else:
        name, clipped = TRUNCATED, torch.zeros_like(ratio, dtype=torch.bool)
        if high is not None:
            clipped = clipped | (ratio >= high)
        if low is not None:
            clipped = clipped | (ratio <= low)
    return name, torch.stack([(clipped * counted_mask).sum().float(), counted_mask.sum().float()])


def own_token_mask(batch: Mapping[str, Any]) -> torch.Tensor:
    """Return a mask with 1 for each token that the model generated. `batch`: TRL's output of a generation, or part of
    it."""
    mask: torch.Tensor = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def mean_ratio(batch: Mapping[str, Any], new: torch.Tensor | None, accelerator: Any) -> float:
    """Return the mean ratio of new to old token probabilities; exactly 1 if TRL keeps no old probabilities."""
    old = batch.get("old_per_token_logps")
    if old is None or new is None:
        return 1.0
    mask = own_token_mask(batch)
    totals = torch.stack([((new - old).exp() * mask).sum(), mask.sum().float()])
    total, count = accelerator.reduce(totals, reduction="sum").tolist()
    return float(total / max(count, 1.0))


def disable_logprobs(generation: Any) -> None:
    """Stop vLLM from computing log-probabilities, which halves its speed (a 1.5B model on an H100, 1,024 concurrent
    completions). TRL gets zeros instead, which it doesn't use here."""
    generate = generation.generate

    def generate_without(*args: Any, **kwargs: Any) -> Any:
        prompts, completions, _, _ = generate(*args, **kwargs)
        return prompts, completions, [[[0.0]] * len(tokens) for tokens in completions], None

    generation.logprobs = None
    generation.generate = generate_without
