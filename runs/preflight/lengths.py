"""Prompt and completion against the model's context and the vLLM server's."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn
from workers.contract import Rollout

CHARS_A_TOKEN = 3
"""A cautious guess for text of any language until the tokenizer has counted."""


def check(draft: Draft) -> Iterator[Finding]:
    yield from _beyond_the_model(draft)
    completion = draft.value("max_completion_length")
    if not isinstance(completion, int) or completion < 1:
        return
    for limit, whose in _limits(draft):
        yield from _against(draft, completion, limit, whose)


def _limits(draft: Draft) -> Iterator[tuple[int, str]]:
    context = (draft.inspection or {}).get("context_length")
    if isinstance(context, int) and context > 0:
        yield context, "the model's context"
    hardware = draft.hardware
    if draft.server and draft.server.max_model_len and not draft.server.attached:
        yield draft.server.max_model_len, "the vLLM server's length in the profile"
    if hardware is None or hardware.rollout != Rollout.COLOCATE:
        return
    own = draft.grpo.get("vllm_max_model_length")
    if isinstance(own, int) and own > 0:
        yield own, "vllm_max_model_length"
    elif hardware.colocate_max_model_len:
        yield hardware.colocate_max_model_len, "the colocated vLLM's length in the profile"


def _beyond_the_model(draft: Draft) -> Iterator[Finding]:
    """vLLM doesn't start with more than the model's own context."""
    context, hardware = draft.told("context_length"), draft.hardware
    if not context or hardware is None:
        return
    if draft.server:
        length = None if draft.server.attached else draft.server.max_model_len
    else:
        length = hardware.colocate_max_model_len if hardware.rollout == Rollout.COLOCATE else None
    if length and length > context:
        yield stop(
            "profile",
            f"The profile gives vLLM sequences of {length:,} tokens, and the model's context ends at {context:,}.",
            "Leave the length empty in the profile to take the model's own.",
        )


def _against(draft: Draft, completion: int, limit: int, whose: str) -> Iterator[Finding]:
    if completion >= limit:
        half = max(limit // 2, 1)
        yield stop(
            "max_completion_length",
            f"Completions of {completion:,} tokens leave no room for a prompt in {limit:,} ({whose}).",
            "Shorten the completions.",
            Fix(f"Set it to {half}", {"max_completion_length": str(half)}),
        )
        return
    chars = draft.data.longest_prompt_chars if draft.data else None
    if chars and chars / CHARS_A_TOKEN + completion > limit:
        room = limit - chars // CHARS_A_TOKEN - 1
        yield warn(
            "max_completion_length",
            f"The longest prompt has {chars:,} characters: with {completion:,} tokens of completion it may pass "
            f"{limit:,} ({whose}).",
            "Shorten the completions, or make a version of the dataset without long prompts: under its Rows.",
            *([Fix(f"Set it to {room}", {"max_completion_length": str(room)})] if room >= 16 else []),
        )
