"""Checks of GRPOConfig's arguments: known names, valid values, and combinations that don't work."""

import difflib
from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, stop, warn
from workers.contract.stack.training_rules import CHOICES, MADE_BY_THE_FORM, RESERVED, unusual_values, value_problems

LOSS_LEVELS = {"luspo": ("sequence", "whole sequences"), "vespo": ("token", "tokens")}
"""Loss -> (the only level of importance sampling for which it is defined, what that level applies to)."""
SCHEDULER_NEEDS = {
    "cosine_with_min_lr": ("min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("min_lr", "min_lr_rate"),
    "warmup_stable_decay": ("num_decay_steps",),
}


def check_names(draft: Draft) -> Iterator[Finding]:
    fields = {f["name"] for f in (draft.schema or {}).get("fields", ())}
    if not fields:
        return
    for name in sorted(set(draft.grpo) - fields - RESERVED - MADE_BY_THE_FORM):
        matches = difflib.get_close_matches(name, fields, n=1)
        yield stop(
            name,
            f"GRPOConfig of the trainer's TRL ({(draft.schema or {}).get('trl', '?')}) has no field {name}.",
            f"Did you mean {matches[0]}?" if matches else "Leave it out.",
        )


def check_values(draft: Draft) -> Iterator[Finding]:
    for problem in value_problems(draft.grpo):
        name = problem.field
        if name in RESERVED:
            fixes = [Fix(f"Clear {name}", {name: ""})]
        else:
            matches = difflib.get_close_matches(str(draft.grpo[name]), CHOICES.get(name, ()), n=2)
            fixes = [Fix(f"Use {match}", {name: match}) for match in matches]
        yield stop(name, problem.sentence, problem.fix, *fixes)
    for problem in unusual_values(draft.grpo, lora=draft.lora is not None):
        yield warn(problem.field, problem.sentence, problem.fix)


def check_combinations(draft: Draft) -> Iterator[Finding]:
    yield from _reference(draft)
    yield from _losses(draft)
    yield from _vllm_correction(draft)
    yield from _scheduler(draft)
    yield from _attention(draft)
    if draft.value("bf16") and draft.value("fp16"):
        yield stop("precision", "bf16 and fp16 are both on.", "Choose one precision.")


def _reference(draft: Draft) -> Iterator[Finding]:
    if not draft.value("sync_ref_model"):
        return
    turn_off = Fix("Turn sync_ref_model off", {"sync_ref_model": ""})
    if not draft.value("beta"):
        cause = "sync_ref_model updates a reference model, but β = 0 keeps none."
        yield stop("sync_ref_model", cause, "Set β above 0, or turn sync_ref_model off.", turn_off)
    elif draft.lora:
        cause = "sync_ref_model needs a separate reference model; with LoRA the base model is the reference."
        yield stop("sync_ref_model", cause, "Turn it off, or train without LoRA.", turn_off)


def _losses(draft: Draft) -> Iterator[Finding]:
    loss, level = draft.value("loss_type"), draft.value("importance_sampling_level")
    required_level, samples = LOSS_LEVELS.get(str(loss), (level, ""))
    if level != required_level:
        yield warn(
            "loss_type",
            f"The {loss.upper()} loss is defined for importance sampling of {samples}.",
            f"Set importance_sampling_level to {required_level}.",
            Fix(f"Use {required_level} level", {"importance_sampling_level": required_level}),
        )
    if level == "sequence" and loss in ("bnpo", "dr_grpo", "dapo", "cispo"):
        yield warn(
            "loss_type",
            f"Sequence-level importance sampling (GSPO) was made for the grpo loss, not for {loss}.",
            "Use the grpo loss with it.",
            Fix("Use grpo", {"loss_type": "grpo"}),
        )
    yield from _clip_bounds(draft)
    low, high = draft.value("epsilon"), draft.value("epsilon_high")
    if high is not None and low is not None and high < low:
        yield warn(
            "epsilon_high",
            f"The upper clip bound {high:g} is below the lower one {low:g}, so increases are clipped first.",
            "Usually the upper bound is the same or slightly larger (0.28 in DAPO).",
            Fix("Use the lower bound for both", {"epsilon_high": ""}),
        )


def _clip_bounds(draft: Draft) -> Iterator[Finding]:
    """Report bounds that cut the ratio of unchanged tokens, which is 1, or that are never reached."""
    high, field = draft.value("epsilon_high"), "epsilon_high"
    high = draft.value("epsilon") if high is None else high
    if not isinstance(high, int | float):
        return
    if draft.value("loss_type") == "cispo" and high < 1:
        yield stop(
            field,
            f"CISPO caps each token's weight at ε high, which is {high:g} here: weights around 1 would all be cut to "
            "it, which only makes the learning rate smaller.",
            "CISPO needs a bound of its own above 1; 5 is usual.",
            Fix("Use 5", {field: "5.0"}),
        )
    delta = draft.value("delta")
    if isinstance(delta, int | float) and 1 < delta < 1 + high:
        yield warn(
            "delta",
            f"delta = {delta:g} is below 1 + ε = {1 + high:g}, so it cuts ratios that the clip bound still allows.",
            "delta should be above 1 + ε; 4 is usual, and none is TRL's default.",
            Fix("Clear delta", {"delta": ""}),
        )


def _vllm_correction(draft: Draft) -> Iterator[Finding]:
    low = draft.value("vllm_importance_sampling_clip_min")
    high = draft.value("vllm_importance_sampling_clip_max")
    mode = str(draft.value("vllm_importance_sampling_mode"))
    if low is not None and high is not None and low >= high:
        yield stop(
            "vllm_importance_sampling_clip_min",
            f"The lower bound {low:g} is not below the upper bound {high:g}.",
            "Lower it, or leave it empty.",
            Fix("Clear the lower bound", {"vllm_importance_sampling_clip_min": ""}),
        )
    vespo = draft.value("loss_type") == "vespo"
    uses_vllm = draft.hardware is not None and draft.hardware.rollout != "transformers"
    if vespo and uses_vllm and draft.value("vllm_importance_sampling_correction") and not mode.startswith("token_"):
        yield stop(
            "vllm_importance_sampling_mode",
            f"The VESPO loss with vLLM needs a token mode, not {mode}.",
            "Use token_mask or token_truncate.",
            Fix("Use token_mask", {"vllm_importance_sampling_mode": "token_mask"}),
        )


def _scheduler(draft: Draft) -> Iterator[Finding]:
    name = draft.value("lr_scheduler_type")
    needs = SCHEDULER_NEEDS.get(str(name))
    kwargs = draft.value("lr_scheduler_kwargs") or {}
    if not isinstance(kwargs, dict | str):
        yield stop("lr_scheduler_kwargs", "The scheduler's arguments are not a JSON object.", 'Enter {"name": value}.')
    elif needs and not any(key in kwargs for key in needs):
        yield stop(
            "lr_scheduler_type",
            f"The scheduler {name} needs {' or '.join(needs)}.",
            "Set it in lr_scheduler_kwargs under Advanced, or choose cosine.",
            Fix("Use cosine", {"lr_scheduler_type": "cosine"}),
        )
    steps, warmup = draft.value("max_steps"), draft.value("warmup_steps")
    if steps and warmup and 0 < steps <= warmup:
        yield warn(
            "warmup_steps",
            f"The warm-up of {warmup:g} steps lasts as long as the run, so the full learning rate is never reached.",
            "Use a shorter warm-up.",
            Fix(f"Set warm-up to {max(steps // 10, 1)}", {"warmup_steps": str(max(steps // 10, 1))}),
        )


def _attention(draft: Draft) -> Iterator[Finding]:
    attention = draft.attn_implementation or ""
    if attention.startswith("flash_attention") and draft.hardware and draft.hardware.trainer_gpus == 0:
        yield stop(
            "attn_implementation",
            f"{attention} runs only on GPUs, but this profile trains on the CPU.",
            "Use sdpa, or the model's default.",
            Fix("Use sdpa", {"attn_implementation": "sdpa"}),
        )
