"""Checks of the model: its availability, format, context length and fit with the data."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from controlplane.platform.templatetags.figures import download_size
from runs.launch.preflight.draft import DataFacts, Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run.hardware import Quantization, Rollout
from workers.contract.stack.commands import is_local

MIN_FREE_BYTES = 64 << 20
"""Minimum number of bytes that stay free after a download."""


def check(draft: Draft) -> Iterator[Finding]:
    if not draft.model:
        yield stop("model", "No model is chosen.", "Enter a folder on the host, or a hub id such as Qwen/Qwen3-0.6B.")
        return
    inspection = draft.inspection
    if inspection is None:
        if any(host.fresh for host in draft.hosts):
            yield note("model", "No host has inspected this model yet.", "You can launch without its answer.")
        return
    if not inspection.get("ok"):
        fix = "Then ask the host again below the model’s name." if inspection.get("gated") else "Choose another model."
        yield stop("model", inspection.get("error") or "The host can't use this model.", fix)
        return
    yield from _chat(draft, inspection)
    if inspection.get("custom_code"):
        yield warn(
            "model",
            "The model comes with its own code, which is not run here, so it loads only if Transformers supports its "
            "architecture.",
            "Use a model that Transformers supports.",
        )
    if inspection.get("hub"):
        yield _download(draft, inspection)


def check_folder(draft: Draft) -> Iterator[Finding]:
    """Stop if no host has inspected a folder and it is outside the folders that the hosts allow."""
    if draft.inspection is not None or not is_local(draft.model):
        return
    allowed = {host.name: _folders(host.inventory) for host in draft.hosts if host.usable}
    path = os.path.normpath(draft.model)
    if not allowed or not all(allowed.values()):
        return
    if not any(_is_inside(path, root) for roots in allowed.values() for root in roots):
        roots = dict.fromkeys(root for roots in allowed.values() for root in roots)
        yield stop(
            "model",
            f"{draft.model} is not inside the model folders of {', '.join(allowed)}: {', '.join(roots)}.",
            "Move it there, or add its folder to GRPO_MODEL_ROOTS on the host.",
        )


def _folders(inventory: dict[str, Any]) -> list[str]:
    roots = inventory.get("model_roots")
    return [*roots, *filter(None, [inventory.get("runs_dir")])] if isinstance(roots, list) else []


def _is_inside(path: str, root: str) -> bool:
    return os.path.isabs(path) and os.path.commonpath([path, os.path.normpath(root)]) == os.path.normpath(root)


def _chat(draft: Draft, inspection: dict[str, Any]) -> Iterator[Finding]:
    if not (draft.data and draft.data.ready):
        return
    if draft.data.chat and inspection.get("chat_template") is False:
        yield stop(
            "model",
            f"{draft.data.name} has chat messages, but the model's tokenizer has no chat template to render them.",
            "Use an instruction-tuned model, or map the dataset's prompt as plain text.",
        )
    if not draft.data.chat and inspection.get("chat_template"):
        yield warn(
            "dataset_version",
            "The prompts are plain text, but the model was made for chat. Its template is not applied.",
            "Map the dataset's prompt as chat messages if the model should see its usual format.",
        )


def _download(draft: Draft, inspection: dict[str, Any]) -> Finding:
    host = str(inspection.get("host") or "the host")
    if inspection.get("unreachable"):
        finding = warn(
            "model",
            f"{host} has no complete copy of this model and could not reach the hub.",
            "The run fails if it still can't when it starts. Check the host's connection, or enter a folder there.",
        )
        return replace(finding, detail=str(inspection.get("why") or ""))
    size, free_bytes = draft.model_size("bytes"), draft.model_size("free_bytes")
    if not size:
        return note("model", "The host has no copy of this model and downloads it when the run starts.")
    sizes = f"{download_size(size)} to download, {download_size(free_bytes)} free on {host}."
    if size + MIN_FREE_BYTES <= free_bytes:
        return note("model", sizes, "The run starts with the download.")
    may_be_elsewhere = not draft.host_chosen and sum(host.usable for host in draft.hosts) > 1
    return (warn if may_be_elsewhere else stop)(
        "model",
        f"The model doesn't fit on {host}'s disk: {sizes}",
        "Free up space in its Hugging Face cache, or choose a smaller model.",
    )


_TRAIN_A_LORA = Fix("Train a LoRA", {"use_lora": "on"})


def check_quantization(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    quantized_as = (draft.inspection or {}).get("quantization")
    if quantized_as and draft.lora is None:
        yield stop(
            "use_lora",
            f"The model's weights are quantized ({quantized_as}), so only an adapter on them can be trained.",
            "Train a LoRA, or choose the model in full precision.",
            _TRAIN_A_LORA,
        )
    if quantized_as and hardware is not None and hardware.quantization != Quantization.NONE:
        yield stop(
            "profile",
            f"The model is already quantized ({quantized_as}), and the profile would quantize it again to "
            f"{hardware.quantization}.",
            "Choose a profile without quantization, or the model in full precision.",
        )


CHARS_A_TOKEN = 3
"""Characters per token: a conservative guess for any language, used until the tokenizer has counted them."""


def check_lengths(draft: Draft) -> Iterator[Finding]:
    yield from _beyond_context(draft)
    completion = draft.value("max_completion_length")
    if not isinstance(completion, int) or completion < 1:
        return
    for limit, name in _limits(draft):
        yield from _check_length(draft, completion, limit, name)


def _limits(draft: Draft) -> Iterator[tuple[int, str]]:
    context = (draft.inspection or {}).get("context_length")
    if isinstance(context, int) and context > 0:
        yield context, "the model's context"
    hardware = draft.hardware
    if draft.server and draft.server.max_model_len and not draft.server.attached:
        yield draft.server.max_model_len, "the vLLM server's maximum length in the profile"
    if hardware is None or hardware.rollout != Rollout.COLOCATE:
        return
    max_model_length = draft.grpo.get("vllm_max_model_length")
    if isinstance(max_model_length, int) and max_model_length > 0:
        yield max_model_length, "vllm_max_model_length"
    elif hardware.colocate_max_model_len:
        yield hardware.colocate_max_model_len, "the colocated vLLM's maximum length in the profile"


def _beyond_context(draft: Draft) -> Iterator[Finding]:
    """Report a sequence length beyond the model's context, with which vLLM doesn't start."""
    context, hardware = draft.model_size("context_length"), draft.hardware
    if not context or hardware is None:
        return
    if draft.server:
        length = None if draft.server.attached else draft.server.max_model_len
    else:
        length = hardware.colocate_max_model_len if hardware.rollout == Rollout.COLOCATE else None
    if length and length > context:
        yield stop(
            "profile",
            f"The profile lets vLLM's sequences have {length:,} tokens, but the model's context has only {context:,}.",
            "Leave the length empty in the profile to use the model's.",
        )


def _overlong_share(data: DataFacts, room: int) -> str:
    """Describe, from bins of lengths, how many prompts exceed the tokens left for them; return "" for at most one."""
    bins, count = data.prompt_bins, sum(data.prompt_bins)
    if not count:
        return ""
    width = (data.prompt_top + 1) / len(bins) / (1 if data.longest_prompt_tokens else CHARS_A_TOKEN)
    overlong = round(sum(times * min(1.0, max(0.0, number + 1 - room / width)) for number, times in enumerate(bins)))
    return f", as may about {overlong:,} of {count:,} prompts" if overlong > 1 else ""


def _check_length(draft: Draft, completion: int, limit: int, name: str) -> Iterator[Finding]:
    if completion >= limit:
        half = max(limit // 2, 1)
        yield stop(
            "max_completion_length",
            f"Completions of {completion:,} tokens leave no room for a prompt in {limit:,} ({name}).",
            "Shorten the completions.",
            Fix(f"Set it to {half}", {"max_completion_length": str(half)}),
        )
        return
    data = draft.data
    if data is None:
        return
    tokens, characters, results = data.longest_prompt_tokens, data.longest_prompt_chars, draft.result_tokens
    longest_tokens = tokens or (characters or 0) // CHARS_A_TOKEN + 1
    if longest_tokens + completion + results > limit:
        room = limit - longest_tokens - results
        size = f"{tokens:,} tokens" if tokens else f"{characters:,} characters"
        with_results = f" and up to {results:,} of tool results" if results else ""
        yield warn(
            "max_completion_length",
            f"The longest prompt has {size}. With {completion:,} tokens of completion{with_results}, it may "
            f"exceed {limit:,} ({name}){_overlong_share(data, limit - completion - results)}.",
            "Shorten the completions, or create a version of the dataset without long prompts, under its Rows.",
            *([Fix(f"Set it to {room}", {"max_completion_length": str(room)})] if room >= 16 else []),
        )
