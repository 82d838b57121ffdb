"""LoRA: existing target modules, and settings that TRL or vLLM refuses."""

from __future__ import annotations

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, stop, warn
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.problem import Problem
from workers.contract.run.spec import LoraSpec
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
        yield warn("lora_alpha", f"α = {draft.lora.alpha} scales the adapter by less than a quarter.", "Usually α ≥ r.")


def _without_head(lora: LoraSpec, problem: Problem) -> Iterator[Fix]:
    rest = ", ".join(module for module in lora.target_modules if module != "lm_head")
    if problem.field == "lora_targets" and "lm_head" in lora.target_modules and rest:
        yield Fix("Leave it out", {"lora_targets": rest})


def _missing_targets(draft: Draft, lora: LoraSpec) -> Iterator[Finding]:
    modules = (draft.inspection or {}).get("linear_modules")
    if not modules or lora.target_modules == ("all-linear",):
        return
    missing = [m for m in lora.target_modules if m != "lm_head" and not _matches_module(m, modules)]
    if missing:
        usual = [m for m in ("q_proj", "k_proj", "v_proj", "o_proj") if _matches_module(m, modules)]
        offered = ", ".join(usual or [m for m in modules if m != "lm_head"][:4])
        yield stop(
            "lora_targets",
            f"The model has no module {', '.join(missing)}.",
            f"It has: {', '.join(modules[:12])}.",
            Fix(f"Use {offered}", {"lora_targets": offered}),
        )


def _matches_module(target: str, modules: list[str]) -> bool:
    return any(module == target or module.endswith("." + target) for module in modules)
