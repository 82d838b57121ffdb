"""Checks of settings that TRL accepts but that don't have the effect that people expect."""

import math
from collections.abc import Iterator

from controlplane.catalogue.rewards.balance import balance
from controlplane.platform.templatetags.figures import significant
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, warn
from workers.contract.run.hardware import Rollout

NOISE = (0.015, 0.05)
"""Standard deviation of the difference in a token's log-probability between vLLM and the trainer: the usual one, and
one with different kernels."""
MIN_NOTED_SHARE, MIN_WARNED_SHARE = 0.01, 0.05


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is not None and draft.hardware.rollout is not Rollout.TRANSFORMERS:
        yield from _masked_sequences(draft)
    yield from _no_kl(draft)
    yield from _scales(draft)


def share_masked(tokens: int, cap: float, noise: float) -> float:
    """Estimate the share of completions of this many tokens whose ratio is above the cap.

    The ratio of a sequence is exp of the sum of its tokens' differences. If these are independent with mean 0, the
    sum is normally distributed with standard deviation noise × √tokens.
    """
    if tokens < 1 or cap <= 1:
        return 0.0
    return 0.5 * math.erfc(math.log(cap) / (noise * math.sqrt(tokens)) / math.sqrt(2))


def _masked_sequences(draft: Draft) -> Iterator[Finding]:
    cap, length = draft.value("vllm_importance_sampling_clip_max"), draft.value("max_completion_length")
    is_corrected = draft.value("vllm_importance_sampling_correction")
    if not is_corrected or draft.value("vllm_importance_sampling_mode") != "sequence_mask":
        return
    if not isinstance(cap, int | float) or not isinstance(length, int) or isinstance(cap, bool):
        return
    usual_share, high_share = (share_masked(length, float(cap), noise) for noise in NOISE)
    if usual_share < MIN_NOTED_SHARE:
        return
    finding = warn if usual_share >= MIN_WARNED_SHARE else note
    yield finding(
        "vllm_importance_sampling_mode",
        f"sequence_mask drops completions whose ratio is above {cap:g}: of those with {length:,} tokens, about "
        f"{usual_share:.0%}, or up to {high_share:.0%} if vLLM and the trainer differ more.",
        "token_truncate weights each token and drops no completion. A chart of the run shows the actual share.",
        Fix("Use token_truncate", {"vllm_importance_sampling_mode": "token_truncate"}),
    )


def _no_kl(draft: Draft) -> Iterator[Finding]:
    if draft.value("beta") or not draft.lora:
        return
    cause = "With β = 0, no KL is logged. A small β such as 0.001 logs it, and takes no memory with a LoRA."
    yield note("beta", cause, "", Fix("β = 0.001", {"beta": "0.001"}))


def _scales(draft: Draft) -> Iterator[Finding]:
    if not draft.rewards:
        return
    drowns = balance(draft.rewards, str(draft.value("multi_objective_aggregation"))).drowns
    if drowns is None:
        return
    yield warn(
        "reward_version",
        f"{drowns.span.spec.name} spans {significant(drowns.size)} of the total, {significant(drowns.times)} times as "
        f"much as {drowns.largest.spec.name}, so the others hardly matter.",
        f"Give it a weight near {significant(drowns.weight)} in the reward config"
        + (f", or use {drowns.instead_title} instead." if drowns.instead else "."),
    )
