"""Checks of how completions are sampled: parameters that don't exist, bias the loss, or mask every completion."""

import json
import re
from collections.abc import Iterator
from typing import Any

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, stop, warn
from workers.contract.run.hardware import Rollout
from workers.contract.stack.generation_rules import FIELD, arguments_of, problems

NEUTRAL_SAMPLING = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
NEUTRAL_ARGUMENTS: dict[str, Any] = {
    **{"presence_penalty": 0, "frequency_penalty": 0, "min_tokens": 0, "thinking_token_budget": None},
    **{"logit_bias": {}, "bad_words": [], "allowed_token_ids": None},
}
"""Arguments of generation_kwargs that change the distribution -> the value without an effect."""
LOOK_AROUND = re.compile(r"\(\?<?[=!]|(?<!\\)(?:\\\\)*\\[1-9]")
"""Pattern of what the grammars of structured outputs lack: look-ahead, look-behind and back-references."""
_ESCAPED = re.compile(r"\\[^1-9]|\[\^?\]?[^\]]{0,300}\]")
"""Pattern of escaped characters and character classes."""


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        return
    vllm = draft.hardware.rollout is not Rollout.TRANSFORMERS
    arguments = arguments_of(draft.grpo.get(FIELD)) or {}
    for problem in problems(draft.grpo.get(FIELD), vllm=vllm):
        yield stop(FIELD, problem.sentence, problem.fix)
    if vllm:
        yield from _changed_distribution(draft, arguments)
        yield from _structured(draft, arguments)
        yield from _masked_stops(draft, arguments)
    if draft.hardware.rollout is Rollout.COLOCATE and isinstance(arguments.get("seed"), int):
        kept_arguments = {key: value for key, value in arguments.items() if key != "seed"}
        yield stop(
            FIELD,
            "With a seed in generation_kwargs, colocated vLLM samples the same completion for every copy of a prompt, "
            "so a group has no differences to learn from.",
            "Remove it; the run's own seed makes sampling repeatable.",
            Fix("Remove seed", {FIELD: json.dumps(kept_arguments) if kept_arguments else ""}),
        )


def _changed_distribution(draft: Draft, arguments: dict[str, Any]) -> Iterator[Finding]:
    """Warn of parameters after which vLLM's log-probabilities are those of a changed distribution, while the trainer's
    are those of the full one."""
    for name, neutral in NEUTRAL_SAMPLING.items():
        value = draft.value(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or value in (neutral, -1):
            continue
        yield warn(name, *_biased(f"{name} = {value:g}"), Fix(f"Use {neutral:g}", {name: f"{neutral:g}"}))
    for name, neutral in NEUTRAL_ARGUMENTS.items():
        if arguments.get(name) not in (None, neutral):
            kept_arguments = {key: value for key, value in arguments.items() if key != name}
            fix = Fix(f"Remove {name}", {FIELD: json.dumps(kept_arguments) if kept_arguments else ""})
            yield warn(FIELD, *_biased(f"{name} = {json.dumps(arguments[name])[:60]}"), fix)


def _biased(setting: str) -> tuple[str, str]:
    cause = (
        f"{setting} biases the importance ratio: vLLM computes probabilities after applying it, the trainer without."
    )
    return cause, "Keep it neutral while training, and use it only when the trained model is used."


def _structured(draft: Draft, arguments: dict[str, Any]) -> Iterator[Finding]:
    structured = arguments.get("structured_outputs")
    own_argument = "vllm_structured_outputs_regex"
    patterns = {
        own_argument: draft.value(own_argument),
        FIELD: structured.get("regex") if isinstance(structured, dict) else None,
    }
    for field, pattern in patterns.items():
        if isinstance(pattern, str) and (match := LOOK_AROUND.search(_ESCAPED.sub("", pattern))):
            kind = "a back-reference" if match[0].startswith("\\") else "a look-around"
            yield warn(
                field,
                f"The pattern has {kind} ({match[0]}), which vLLM's grammars don't support; generation fails at the "
                "first step.",
                "Write the pattern without it, with alternatives and character classes only.",
            )


def _masked_stops(draft: Draft, arguments: dict[str, Any]) -> Iterator[Finding]:
    """Warn of stop strings with masking, since TRL masks the completions that don't end with an EOS token."""
    words = arguments.get("stop")
    eos_token = (draft.inspection or {}).get("eos_token")
    stop_words = words if isinstance(words, list) else [words]
    own_stops = [word for word in stop_words if isinstance(word, str) and word not in ("", eos_token)]
    if draft.value("mask_truncated_completions") and (own_stops or arguments.get("stop_token_ids")):
        ends = ", ".join(json.dumps(word)[:40] for word in own_stops) or "a token of stop_token_ids"
        yield warn(
            "mask_truncated_completions",
            f"A completion that ends at {ends} has no EOS token, so TRL counts it as truncated and masks it: such "
            "completions are never trained on.",
            "Turn the masking off, or remove the stop strings.",
            Fix("Turn the masking off", {"mask_truncated_completions": ""}),
        )
