"""Settings that TRL accepts but that don't have the effect that people expect."""

import math
from collections.abc import Iterator

from controlplane.catalogue.rewards.balance import balance
from controlplane.platform.templatetags.figures import significant
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, warn
from workers.contract.run.hardware import Rollout

NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""Sampling limits and their neutral values."""
NOISE = (0.015, 0.05)
"""Standard deviation of a token's log-probability between vLLM and the trainer: usual, and with unlike kernels."""
WORTH_SAYING, WORTH_WARNING = 0.01, 0.05


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is not None and draft.hardware.rollout is not Rollout.TRANSFORMERS:
        yield from _truncated_sampling(draft)
        yield from _masked_sequences(draft)
    yield from _no_kl(draft)
    yield from _scales(draft)


def _truncated_sampling(draft: Draft) -> Iterator[Finding]:
    """Warn of limits of the sampling: vLLM's log-probabilities are then of the cut distribution, the trainer's of the
    whole."""
    for name, neutral in NEUTRAL.items():
        value = draft.value(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or value == neutral:
            continue
        yield warn(
            name,
            f"{name} = {value:g} biases the importance ratio: vLLM gives probabilities of what it has left of the "
            "distribution, the trainer of all of it.",
            "Leave it neutral while training, and sample so when the model is used.",
            Fix(f"Use {neutral:g}", {name: f"{neutral:g}"}),
        )


def share_masked(tokens: int, cap: float, noise: float) -> float:
    """Estimate the share of completions of this many tokens whose ratio is above the cap.

    The ratio of a sequence is exp of the sum of its tokens' differences; with independent ones around 0 the sum is
    normal with standard deviation noise × √tokens.
    """
    if tokens < 1 or cap <= 1:
        return 0.0
    return 0.5 * math.erfc(math.log(cap) / (noise * math.sqrt(tokens)) / math.sqrt(2))


def _masked_sequences(draft: Draft) -> Iterator[Finding]:
    cap, length = draft.value("vllm_importance_sampling_clip_max"), draft.value("max_completion_length")
    corrected = draft.value("vllm_importance_sampling_correction")
    if not corrected or draft.value("vllm_importance_sampling_mode") != "sequence_mask":
        return
    if not isinstance(cap, int | float) or not isinstance(length, int) or isinstance(cap, bool):
        return
    usual, much = (share_masked(length, float(cap), noise) for noise in NOISE)
    if usual < WORTH_SAYING:
        return
    say = warn if usual >= WORTH_WARNING else note
    yield say(
        "vllm_importance_sampling_mode",
        f"sequence_mask leaves out completions whose ratio is above {cap:g}: of {length:,} tokens about "
        f"{usual:.0%}, up to {much:.0%} where vLLM and the trainer differ more.",
        "token_truncate weighs token by token and leaves none out. The run charts the real share.",
        Fix("Use token_truncate", {"vllm_importance_sampling_mode": "token_truncate"}),
    )


def _no_kl(draft: Draft) -> Iterator[Finding]:
    if draft.value("beta") or not draft.lora:
        return
    cause = "With β = 0 no KL is logged. A small β such as 0.001 logs it, and costs no memory with a LoRA."
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
        f"much as {drowns.largest.spec.name}: the others hardly count.",
        f"Give it a weight near {significant(drowns.weight)} in the reward config"
        + (f", or use {drowns.instead_title} instead." if drowns.instead else "."),
    )
