"""Checks of a LoRA: its target modules, settings that TRL or vLLM refuses, and how its weights reach vLLM."""

from collections.abc import Iterator
from dataclasses import replace

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.duration import work_of
from runs.launch.preflight.estimating import shape_for
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.run.hardware import HardwareSpec, WeightSync
from workers.contract.run.problem import Problem
from workers.contract.run.spec import LoraSpec
from workers.contract.stack import adapters
from workers.contract.stack.hardware_rules import lora_problems

_TRAIN_A_LORA = Fix("Train a LoRA", {"use_lora": "on"})


def check(draft: Draft) -> Iterator[Finding]:
    for problem in lora_problems(draft.hardware or HardwareSpec(""), draft.lora):
        if draft.lora is None:
            yield stop("use_lora", problem.sentence, problem.fix, _TRAIN_A_LORA)
        else:
            yield stop(
                problem.field, problem.sentence, problem.fix or "Correct it.", *_without_head(draft.lora, problem)
            )
    if draft.lora is None:
        return
    yield from _missing_targets(draft, draft.lora)
    if draft.lora.alpha < draft.lora.r / 4:
        yield warn("lora_alpha", f"α = {draft.lora.alpha} scales the adapter by less than 1/4.", "Usually α ≥ r.")


def _without_head(lora: LoraSpec, problem: Problem) -> Iterator[Fix]:
    other_targets = ", ".join(module for module in lora.target_modules if module != "lm_head")
    if problem.field == "lora_targets" and "lm_head" in lora.target_modules and other_targets:
        yield Fix("Leave out lm_head", {"lora_targets": other_targets})


def _missing_targets(draft: Draft, lora: LoraSpec) -> Iterator[Finding]:
    modules = (draft.inspection or {}).get("linear_modules")
    if not modules or lora.target_modules == ("all-linear",):
        return
    missing_modules = [m for m in lora.target_modules if m != "lm_head" and not _matches_module(m, modules)]
    if missing_modules:
        usual_modules = [m for m in ("q_proj", "k_proj", "v_proj", "o_proj") if _matches_module(m, modules)]
        offered = ", ".join(usual_modules or [m for m in modules if m != "lm_head"][:4])
        yield stop(
            "lora_targets",
            f"The model has no {'module' if len(missing_modules) == 1 else 'modules'} {', '.join(missing_modules)}.",
            f"It has: {', '.join(modules[:12])}.",
            Fix(f"Use {offered}", {"lora_targets": offered}),
        )


def _matches_module(target: str, modules: list[str]) -> bool:
    return any(module == target or module.endswith("." + target) for module in modules)


# --- its way to vLLM --------------------------------------------------------------------------------------------------


def check_weights(draft: Draft) -> Iterator[Finding]:
    server, hardware = draft.server, draft.hardware
    if server is None or hardware is None or draft.lora is None:
        return
    merges, measured_s = server.weight_sync == WeightSync.NCCL, measured_step_s(draft)
    explanation = (
        "With NCCL, each update merges the adapter into the weights and sends all of them."
        if merges
        else "Only the adapter is sent to the server, which applies it in each layer."
    )
    if measured_s is None:
        if merges:
            yield note("use_lora", explanation, "LoRA hot-swap sends only the adapter.")
        return
    adapter_s, merged_s = measured_s
    faster_sync = WeightSync.NCCL if merged_s < adapter_s else WeightSync.LORA
    times = f"took {merged_s:.2g} s merged and {adapter_s:.2g} s as an adapter"
    reason = f"In a measurement on this GPU with such a model, a step's completions and weight update {times}."
    if faster_sync == server.weight_sync:
        payload = "merged weights" if merges else "only the adapter"
        yield note("use_lora", f"This run sends {payload}. {reason}")
    elif faster_sync == WeightSync.LORA or (server.servers == 1 and not server.shared):
        other_hardware = replace(hardware, server=replace(server, weight_sync=faster_sync))
        fixes = [
            Fix(f"Use “{profile.spec.profile}”", {"profile": profile.key, **_form_values(draft.lora)})
            for profile in draft.profiles
            if profile.spec == replace(other_hardware, profile=profile.spec.profile)
        ]
        yield note(
            "use_lora", f"{explanation} {reason}", "Choose the other kind of weight update in the profile.", *fixes[:1]
        )


def _form_values(lora: LoraSpec) -> dict[str, str]:
    sizes = {"lora_r": str(lora.r), "lora_alpha": str(lora.alpha), "lora_dropout": f"{lora.dropout:g}"}
    return {"use_lora": "on", **sizes, "lora_targets": ", ".join(lora.target_modules)}


def measured_step_s(draft: Draft) -> tuple[float, float] | None:
    """Return a step's measured seconds with an adapter and with merged weights, or None unless both were measured."""
    shape, work, lora = shape_for(draft.inspection), work_of(draft), draft.lora
    if shape is None or work is None or lora is None or draft.server is None:
        return None
    hosts = [host for host in fitting_hosts(draft) if host.gpus]
    gpus = [gpu for host in hosts for gpu in host.inventory.get("gpus") or () if isinstance(gpu, dict)]
    cards = {str(gpu.get("name")) for gpu in gpus}
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
