"""Ways of a LoRA to vLLM's servers, merged into all weights or as an adapter, and the faster one by measurement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.duration import work_of
from runs.launch.preflight.estimating import shape_for
from runs.launch.preflight.finding import Finding, Fix, note
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.run.hardware import WeightSync
from workers.contract.run.spec import LoraSpec
from workers.contract.stack import adapters


def check(draft: Draft) -> Iterator[Finding]:
    server, hardware = draft.server, draft.hardware
    if server is None or hardware is None or draft.lora is None:
        return
    merges, roads = server.weight_sync == WeightSync.NCCL, measured_roads(draft)
    how = (
        "With NCCL the adapter is merged into the weights for each update, and all of them travel."
        if merges
        else "The adapter alone travels to the server, which adds it to each layer's product."
    )
    if roads is None:
        if merges:
            yield note("use_lora", how, "LoRA hot-swap sends the adapter alone.")
        return
    adapter_s, merged_s = roads
    faster = WeightSync.NCCL if merged_s < adapter_s else WeightSync.LORA
    times = f"a step's completions and its update took {merged_s:.2g} s merged, and {adapter_s:.2g} s as an adapter"
    because = f"When this card was measured with such a model, {times}."
    if faster == server.weight_sync:
        pushes = "pushes merged weights" if merges else "sends the adapter alone"
        yield note("use_lora", f"This run {pushes}: {because[:1].lower()}{because[1:]}")
    elif faster == WeightSync.LORA or (server.servers == 1 and not server.shared):
        changed = replace(hardware, server=replace(server, weight_sync=faster))
        fixes = [
            Fix(f"Use “{profile.spec.profile}”", {"profile": profile.key, **_lora(draft.lora)})
            for profile in draft.profiles
            if profile.spec == replace(changed, profile=profile.spec.profile)
        ]
        yield note("use_lora", f"{how} {because}", "Choose the other way in the profile.", *fixes[:1])


def _lora(lora: LoraSpec) -> dict[str, str]:
    """Return the form's values that keep the LoRA with any profile."""
    sizes = {"lora_r": str(lora.r), "lora_alpha": str(lora.alpha), "lora_dropout": f"{lora.dropout:g}"}
    return {"use_lora": "on", **sizes, "lora_targets": ", ".join(lora.target_modules)}


def measured_roads(draft: Draft) -> tuple[float, float] | None:
    """Return a step's seconds with an adapter and with merged weights, as measured; None: not both were measured."""
    shape, work, lora = shape_for(draft.inspection), work_of(draft), draft.lora
    if shape is None or work is None or lora is None or draft.server is None:
        return None
    hosts = [host for host in fitting_hosts(draft) if host.gpus]
    listed = [gpu for host in hosts for gpu in host.inventory.get("gpus") or () if isinstance(gpu, dict)]
    cards = {str(gpu.get("name")) for gpu in listed}
    requests = round(work.completions / work.generations / max(draft.server.servers, 1))
    speed = adapters.speed_of(cards, shape.total, lora.r, requests)
    if speed is None:
        return None
    tuned = draft.server.tuned_lora and all(adapters.kernels(card, speed.vllm) for card in cards)
    adapter, base = speed.adapter_tokens_per_s(tuned=tuned), speed.base_tokens_per_s
    if not adapter or not base or speed.swap_s is None or speed.push_s is None:
        return None
    tokens = work.completions / work.generations / max(draft.server.servers, 1) * work.limit
    return tokens / adapter + speed.swap_s, tokens / base + speed.push_s
