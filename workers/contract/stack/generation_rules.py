"""Keys of generation_kwargs, which TRL passes unchecked to vLLM's SamplingParams or to Transformers' generate."""

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from workers.contract.run.problem import Problem

FIELD = "generation_kwargs"
_COUNTS = (
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_beams", "num_beam_groups", "min_new_tokens",
    "min_length", "forced_bos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id",
    "prompt_lookup_num_tokens", "prefill_chunk_size", "max_cache_len", "num_assistant_tokens",
    "max_matching_ngram_size", "assistant_lookbehind", "target_lookbehind",
)  # fmt: skip
_NUMBERS = (
    "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "encoder_repetition_penalty", "length_penalty", "max_time",
    "guidance_scale", "penalty_alpha", "diversity_penalty", "assistant_confidence_threshold",
    "assistant_ensemble_weight",
)  # fmt: skip
_FLAGS = ("use_cache", "renormalize_logits", "remove_invalid_values", "token_healing", "low_memory", "disable_compile")
_LISTS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "force_words_ids", "constraints")
_ANY = (
    "early_stopping", "eos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "sequence_bias",
    "watermarking_config", "cache_config", "compile_config", "continuous_batching_config", "dola_layers",
    "num_assistant_tokens_schedule", "assistant_early_exit", "speculation_type", "use_mtp", "is_assistant",
)  # fmt: skip
Kinds = tuple[type, ...]
NUMBER: Kinds = (int, float)
VLLM: Mapping[str, Kinds] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), NUMBER),
    **dict.fromkeys(("seed", "min_tokens", "truncate_prompt_tokens", "thinking_token_budget"), (int,)),
    **dict.fromkeys(("stop", "bad_words"), (str, list)),
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids", "logprob_token_ids"), (list,)),
    **dict.fromkeys(
        ("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"), (bool,)
    ),
    **dict.fromkeys(("detokenize", "skip_reading_prefix_cache"), (bool,)),
    **dict.fromkeys(("structured_outputs", "logit_bias", "extra_args", "repetition_detection"), (dict,)),
}
"""Keys of SamplingParams that a run may set, with the types of their values."""
TRANSFORMERS: Mapping[str, Kinds] = {
    **dict.fromkeys(_COUNTS, (int,)),
    **dict.fromkeys(_NUMBERS, NUMBER),
    **dict.fromkeys(_FLAGS, (bool,)),
    **dict.fromkeys(_LISTS, (list,)),
    **dict.fromkeys(_ANY, ()),
}
"""Keys of GenerationConfig that a run may set; an empty tuple of types allows any."""
OWN_FIELDS = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")},
    **dict.fromkeys(("max_tokens", "max_new_tokens", "max_length"), "max_completion_length"),
    **dict.fromkeys(("n", "best_of", "num_return_sequences"), "num_generations"),
}
"""Keys that would override an argument of the run without the trainer's knowledge -> that argument."""
DECIDED_ELSEWHERE = {
    **dict.fromkeys(("logprobs", "prompt_logprobs", "flat_logprobs"), "The trainer asks for the log-probabilities."),
    **dict.fromkeys(
        ("output_kind", "return_dict_in_generate", "output_scores", "output_logits", "output_attentions"),
        "The trainer needs plain token ids.",
    ),
    "output_hidden_states": "The trainer needs plain token ids.",
    "do_sample": "A group needs sampled completions; greedy ones are all alike.",
    "logits_processors": "A run's settings can't contain code.",
    **dict.fromkeys(("guided_decoding", "guided_regex"), "vLLM's name is structured_outputs now."),
}
STOP_STRINGS = ("stop", "stop_strings")
_KIND_NAMES = {int: "a number", bool: "true or false", str: "a text", list: "a list"}


def arguments_of(value: Any) -> dict[str, Any] | None:
    """Return generation_kwargs as a dictionary, or None if the value isn't a JSON object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def problems(value: Any, *, vllm: bool) -> Iterator[Problem]:
    """Yield the problems of generation_kwargs for a run that generates with vLLM or with Transformers."""
    if value in (None, "", {}):
        return
    arguments = arguments_of(value)
    if arguments is None:
        yield Problem(FIELD, "generation_kwargs is not a JSON object.", 'Enter {"name": value}.')
        return
    for name, argument in arguments.items():
        yield from _problems(str(name), argument, vllm)


def _problems(name: str, value: Any, vllm: bool) -> Iterator[Problem]:
    known_arguments, program = (VLLM, "vLLM") if vllm else (TRANSFORMERS, "Transformers")
    if name in OWN_FIELDS:
        fix = f"Remove {name}, and set {OWN_FIELDS[name]} instead."
        yield Problem(FIELD, f"{name} in generation_kwargs would override the run's {OWN_FIELDS[name]}.", fix)
    elif name in DECIDED_ELSEWHERE:
        yield Problem(FIELD, f"{name} can't be set in generation_kwargs. {DECIDED_ELSEWHERE[name]}", f"Remove {name}.")
    elif not vllm and name in STOP_STRINGS:
        sentence = (
            f"{name} doesn't work without vLLM: Transformers needs a tokenizer for stop strings, which TRL doesn't "
        )
        yield Problem(FIELD, f"{sentence}pass.", f"Remove {name}, or choose a profile with vLLM.")
    elif name not in known_arguments:
        yield Problem(FIELD, f"{program} has no sampling parameter {name}.", _suggestion(name, known_arguments, vllm))
    elif value is not None and known_arguments[name] and not _is_of(value, known_arguments[name]):
        kinds = " or ".join(_KIND_NAMES.get(kind, "an object") for kind in known_arguments[name] if kind is not float)
        yield Problem(FIELD, f"{name} in generation_kwargs is {json.dumps(value)[:60]}.", f"It must be {kinds}.")


def _suggestion(name: str, known_arguments: Mapping[str, Kinds], is_vllm: bool) -> str:
    if name == "stop_strings" and is_vllm:
        return "Did you mean stop?"
    other_keys, program = (TRANSFORMERS, "Transformers") if is_vllm else (VLLM, "vLLM")
    if name in other_keys:
        return f"Remove it: only {program} has it, and the chosen profile doesn't generate with {program}."
    matches = difflib.get_close_matches(name, [*known_arguments, *OWN_FIELDS], n=1)
    return f"Did you mean {matches[0]}?" if matches else "Remove it."


def _is_of(value: Any, kinds: Kinds) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
