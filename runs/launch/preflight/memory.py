"""Checks of the memory of each GPU and of the host: any excess, its largest part, and the cheapest remedies."""

from collections.abc import Iterator
from dataclasses import replace

from runs.launch.preflight.draft import Draft, OtherProfile
from runs.launch.preflight.estimating import HostEstimate, best_estimate
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.memory import GpuEstimate
from workers.contract.memory.parts import Part
from workers.contract.memory.room import NEARLY_FULL
from workers.contract.memory.vllm import Serving
from workers.contract.run.hardware import Offload, Quantization, Rollout, Strategy
from workers.contract.run.spec import LoraSpec

MIN_COMPLETION_LENGTH = 128
"""Minimum completion length that a remedy offers, in tokens."""


def check(draft: Draft) -> Iterator[Finding]:
    """Report excess memory. Only what can't run is refused: a trainer that exceeds its GPU even without the allocator's
    slack, and vLLM without a KV cache."""
    host_estimate = best_estimate(draft)
    if host_estimate is None:
        return
    vllm = host_estimate.estimate.serving
    if vllm is not None and vllm.cache <= 0:
        yield _weights_over(draft, host_estimate, vllm)
    elif vllm is not None:
        yield from _cache(draft, host_estimate, vllm)
    if not host_estimate.fits:
        yield _over(draft, host_estimate)
    elif fullest := _nearly_full(host_estimate):
        yield warn(
            "profile",
            f"{_gpu_label(host_estimate, fullest)} will be nearly full: about {fullest.total:.3g} of "
            f"{fullest.card_gib:.3g} GiB.",
            "Estimates have been within 10 % of measurements, except for runs that stream all weights to vLLM, which "
            "took up to 29 GiB more. A run this close to the limit may still run out of memory.",
            *_fixes(draft, host_estimate, room=NEARLY_FULL),
        )
    yield from _ram(host_estimate)


# --- a GPU ------------------------------------------------------------------------------------------------------------


def _over(draft: Draft, host_estimate: HostEstimate) -> Finding:
    number = max(
        range(len(host_estimate.needed)),
        key=lambda index: host_estimate.needed[index] - host_estimate.estimate.gpus[index].card_gib,
    )
    gpu = host_estimate.estimate.gpus[number]
    cap = draft.hardware.memory_cap_gib if draft.hardware else None
    limit = (
        f"the profile caps it at {cap:.3g} GiB"
        if cap and _is_capped(host_estimate, gpu)
        else f"it has {gpu.card_gib:.3g} GiB"
    )
    fixes = _fixes(draft, host_estimate)
    return stop(
        "profile",
        f"{_gpu_label(host_estimate, gpu)} needs about {host_estimate.needed[number]:.3g} GiB, but {limit}: "
        f"{largest_parts(gpu)}.",
        f"The largest part is {gpu.largest}. {_remedy(draft, gpu)}",
        *fixes,
    )


def _is_capped(host_estimate: HostEstimate, gpu: GpuEstimate) -> bool:
    sizes = {card.index: card.memory_mib / 1024 for card in host_estimate.host.gpus}
    index = host_estimate.indexes[list(host_estimate.estimate.gpus).index(gpu)]
    return gpu.card_gib < sizes[index]


def _nearly_full(host_estimate: HostEstimate) -> GpuEstimate | None:
    gpus = [
        gpu for gpu in host_estimate.estimate.gpus if gpu.role != "server" and gpu.total > NEARLY_FULL * gpu.card_gib
    ]
    return max(gpus, key=lambda gpu: gpu.total / gpu.card_gib, default=None)


def _gpu_label(host_estimate: HostEstimate, gpu: GpuEstimate) -> str:
    index = host_estimate.indexes[list(host_estimate.estimate.gpus).index(gpu)]
    return f"GPU {index} of {host_estimate.host.name}"


def largest_parts(gpu: GpuEstimate) -> str:
    """List the four largest parts of a GPU's memory, with their GiB."""
    parts = sorted(gpu.parts.items(), key=lambda item: -item[1])
    parts = [(part, size) for part, size in parts if part is not Part.ALLOCATOR]
    return ", ".join(f"{part} {size:.3g}" for part, size in parts[:4])


def _remedy(draft: Draft, gpu: GpuEstimate) -> str:
    if gpu.largest in (Part.ACTIVATIONS, Part.LOGITS, Part.GENERATION):
        return "Shorten the completions, or use a smaller batch per process."
    if gpu.largest is Part.VLLM:
        return "Give vLLM a smaller share in the profile, or choose a profile that shards or quantizes more."
    if draft.lora is None:
        return "Train a LoRA, or choose a profile that shards, offloads or quantizes more."
    is_quantized = draft.hardware is not None and draft.hardware.quantization is not Quantization.NONE
    savings = "shards or offloads" if is_quantized else "shards, offloads or quantizes"
    return f"Choose a profile that {savings} more, or a smaller model."


# --- remedies, the cheapest first -------------------------------------------------------------------------------------


def _fixes(draft: Draft, host_estimate: HostEstimate, room: float = 1.0) -> list[Fix]:
    """List the remedies that each suffice alone or, if none does, a combination that suffices, and another profile."""
    singles = [fix for fix, changed_draft in _savings(draft, host_estimate) if _is_enough(changed_draft, room)]
    return [*(singles or _combined_fixes(draft, host_estimate, room)), *_profile_fix(draft, room)][:4]


def _is_enough(draft: Draft, room: float) -> bool:
    host_estimate = best_estimate(draft)
    if host_estimate is None or not host_estimate.fits:
        return False
    vllm = host_estimate.estimate.serving
    if vllm is not None and vllm.cache <= 0:
        return False
    return room >= 1 or all(
        gpu.total <= room * gpu.card_gib for gpu in host_estimate.estimate.gpus if gpu.role != "server"
    )


def _combined_fixes(draft: Draft, host_estimate: HostEstimate, room: float) -> list[Fix]:
    labels: list[str] = []
    values: dict[str, str] = {}
    for _ in range(4):
        saving = next(
            ((fix, changed_draft) for fix, changed_draft in _savings(draft, host_estimate) if fix.label not in labels),
            None,
        )
        if saving is None:
            return []
        fix, draft = saving
        labels, values = [*labels, fix.label], {**values, **fix.values}
        if _is_enough(draft, room):
            return [Fix(", ".join([labels[0], *(label[:1].lower() + label[1:] for label in labels[1:])]), values)]
    return []


def _savings(draft: Draft, host_estimate: HostEstimate) -> Iterator[tuple[Fix, Draft]]:
    """Yield each applicable way to save memory, with the changed draft."""
    grpo = draft.grpo
    if grpo.get("gradient_checkpointing") is False:
        other_settings = {name: value for name, value in grpo.items() if name != "gradient_checkpointing"}
        yield Fix("Turn on gradient checkpointing", {"gradient_checkpointing": ""}), replace(draft, grpo=other_settings)
    yield from _smaller_batch(draft, host_estimate)
    yield from _shorter(draft)
    if draft.lora is None:
        yield Fix("Train a LoRA", {"use_lora": "on"}), replace(draft, lora=LoraSpec())
        if _may_use_8bit_optimizer(draft):
            changed_draft = replace(draft, grpo={**grpo, "optim": "adamw_8bit"})
            yield Fix("Use 8-bit AdamW", {"optim": "adamw_8bit"}), changed_draft


def _smaller_batch(draft: Draft, host_estimate: HostEstimate) -> Iterator[tuple[Fix, Draft]]:
    """Yield the largest batch per process that fits, or 1, with more passes for the same completions per step."""
    if draft.value("steps_per_generation") or draft.value("generation_batch_size"):
        return
    batch, passes = host_estimate.settings.batch, host_estimate.settings.passes
    sizes = [batch // divisor for divisor in range(2, batch + 1) if batch % divisor == 0]
    drafts = [(size, batch // size * passes) for size in sizes]
    for size, passes_ in drafts:
        values = {"per_device_train_batch_size": size, "gradient_accumulation_steps": passes_}
        changed_draft = replace(draft, grpo={**draft.grpo, **values})
        if _is_enough(changed_draft, 1.0) or size == 1:
            form_values = {name: str(value) for name, value in values.items()}
            yield Fix(f"Use a batch of {size} per process and {passes_} passes", form_values), changed_draft
            return


def _shorter(draft: Draft) -> Iterator[tuple[Fix, Draft]]:
    length = draft.value("max_completion_length")
    shorter = length // 2 if isinstance(length, int) else 0
    while shorter >= MIN_COMPLETION_LENGTH:
        changed_draft = replace(draft, grpo={**draft.grpo, "max_completion_length": shorter})
        if _is_enough(changed_draft, 1.0) or shorter // 2 < MIN_COMPLETION_LENGTH:
            yield (
                Fix(f"Shorten completions to {shorter:,} tokens", {"max_completion_length": str(shorter)}),
                changed_draft,
            )
            return
        shorter //= 2


def _may_use_8bit_optimizer(draft: Draft) -> bool:
    hardware = draft.hardware
    is_sharded = hardware is None or hardware.strategy not in (Strategy.NONE, Strategy.DDP)
    is_installed = any(host.versions.get("bitsandbytes") for host in draft.hosts)
    return is_installed and not is_sharded and "optim" not in draft.grpo


def _profile_fix(draft: Draft, room: float) -> list[Fix]:
    """Return a list with the fix that chooses the fastest other profile that fits, or [] if there is none."""
    for profile in sorted(draft.profiles, key=slowness):
        if draft.hardware is not None and profile.spec.profile == draft.hardware.profile:
            continue
        if _is_enough(with_profile(draft, profile), room):
            return [Fix(f"Use “{profile.spec.profile}”", {"profile": profile.key, **profile.values})]
    return []


def slowness(profile: OtherProfile) -> tuple[bool, bool, bool, bool]:
    """Return a sort key of the features that slow a profile down: an attached server, generation without vLLM,
    offloading to the host's memory, quantized weights."""
    spec, server = profile.spec, profile.spec.vllm_server
    has_attached = bool(server and server.attached)
    is_quantized = spec.quantization is not Quantization.NONE
    return has_attached, spec.rollout is Rollout.TRANSFORMERS, spec.offload is not Offload.NONE, is_quantized


def with_profile(draft: Draft, profile: OtherProfile) -> Draft:
    return replace(draft, hardware=profile.spec, lora=profile.lora, grpo={**draft.grpo, **profile.batch})


# --- vLLM -------------------------------------------------------------------------------------------------------------


def _weights_over(draft: Draft, host_estimate: HostEstimate, vllm: Serving) -> Finding:
    share = (draft.hardware and draft.hardware.vllm_share) or 0.0
    return stop(
        "profile",
        f"vLLM's weights take {vllm.weights:.3g} GiB on each GPU and its buffers about {vllm.activations:.3g}; its "
        f"share of {share:g} is {vllm.share:.3g} GiB, which leaves nothing for the KV cache.",
        "Give vLLM a larger share in the profile, or split it over more GPUs.",
        *_profile_fix(draft, 1.0),
    )


def _cache(draft: Draft, host_estimate: HostEstimate, vllm: Serving) -> Iterator[Finding]:
    limit = max_sequence_tokens(draft)
    if limit and vllm.tokens < limit:
        yield stop(
            "profile",
            f"vLLM's KV cache holds about {vllm.tokens:,} tokens, but one sequence may have {limit:,}, so vLLM "
            "refuses to start.",
            "Limit the sequence length in the profile, give vLLM a larger share, or split it over more GPUs.",
            *_profile_fix(draft, 1.0),
        )
        return
    at_once = int(vllm.sequences(host_estimate.settings.length))
    completions = draft.batch.completions // max(_servers(draft), 1)
    if at_once < completions:
        yield note(
            "profile",
            f"vLLM has room for about {at_once:,} of a step's {completions:,} completions at once; the others wait.",
            "A larger share or shorter completions would make generation faster.",
        )


def max_sequence_tokens(draft: Draft) -> int:
    """Return the maximum number of tokens in a sequence for vLLM, or 0 if it isn't known."""
    hardware = draft.hardware
    if hardware is None:
        return 0
    if hardware.rollout is Rollout.COLOCATE:
        set_length = hardware.colocate_max_model_len
    else:
        set_length = hardware.server.max_model_len if hardware.server else None
    return set_length or draft.model_size("context_length")


def _servers(draft: Draft) -> int:
    server = draft.server
    if server is not None:
        return server.servers * max(server.data_parallel, 1)
    return draft.hardware.processes if draft.hardware else 1


# --- the host's memory ------------------------------------------------------------------------------------------------


def _ram(host_estimate: HostEstimate) -> Iterator[Finding]:
    ram_gib, needed_gib = host_estimate.host.ram_mib / 1024, host_estimate.estimate.ram_gib
    if ram_gib and needed_gib > ram_gib:
        yield stop(
            "profile",
            f"The run needs about {needed_gib:.3g} GiB of memory on {host_estimate.host.name}, which has {ram_gib:.3g} "
            "GiB, so the kernel would kill the trainer.",
            "Train a LoRA, or choose a profile that offloads less.",
        )
