"""Prompt and completion against the model's context and the vLLM server's."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn

CHARS_A_TOKEN = 3
"""A cautious guess for text of any language until the tokenizer has counted."""


def check(draft: Draft) -> Iterator[Finding]:
    completion = draft.value("max_completion_length")
    if not isinstance(completion, int) or completion < 1:
        return
    for limit, whose in _limits(draft):
        yield from _against(draft, completion, limit, whose)


def _limits(draft: Draft) -> Iterator[tuple[int, str]]:
    context = (draft.inspection or {}).get("context_length")
    if isinstance(context, int) and context > 0:
        yield context, "the model's context"
    server = draft.hardware.server if draft.hardware and draft.hardware.rollout == "server" else None
    if server and server.max_model_len:
        yield server.max_model_len, "the vLLM server's length in the profile"
    own = draft.value("vllm_max_model_length")
    if isinstance(own, int) and own > 0 and draft.hardware and draft.hardware.rollout == "colocate":
        yield own, "vllm_max_model_length"


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
            "Shorten the completions, or leave long prompts out of the dataset.",
            *([Fix(f"Set it to {room}", {"max_completion_length": str(room)})] if room >= 16 else []),
        )
