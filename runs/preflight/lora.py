"""LoRA: targets that exist, and what TRL and vLLM refuse."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn
from workers.contract import LoraSpec, WeightSync
from workers.contract.commands import LORA_RANKS


def check(draft: Draft) -> Iterator[Finding]:
    if draft.lora is None:
        if _swaps(draft):
            yield stop(
                "use_lora",
                "This profile pushes the policy to its vLLM server as a LoRA adapter, and the run trains all weights.",
                "Train a LoRA, or choose a profile with NCCL weight updates.",
                Fix("Train a LoRA", {"use_lora": "on"}),
            )
        return
    yield from _targets(draft, draft.lora)
    if _swaps(draft) and draft.lora.r > LORA_RANKS[-1]:
        yield stop("lora_r", f"vLLM serves adapters up to rank {LORA_RANKS[-1]}.", "Use a smaller rank.")
    if draft.lora.alpha < draft.lora.r / 4:
        yield warn("lora_alpha", f"α = {draft.lora.alpha} scales the adapter by less than a quarter.", "Usually α ≥ r.")


def _swaps(draft: Draft) -> bool:
    return draft.server is not None and draft.server.weight_sync == WeightSync.LORA


def _targets(draft: Draft, lora: LoraSpec) -> Iterator[Finding]:
    if not lora.target_modules:
        yield stop("lora_targets", "No LoRA target is named.", "Name at least one module, such as q_proj.")
    if "lm_head" in lora.target_modules:
        rest = ", ".join(m for m in lora.target_modules if m != "lm_head")
        yield stop(
            "lora_targets",
            "TRL refuses LoRA on lm_head: it reads that layer's weights directly, so the adapter would never train.",
            "Leave lm_head out.",
            *([Fix("Leave it out", {"lora_targets": rest})] if rest else []),
        )
    known = (draft.inspection or {}).get("linear_modules")
    if not known or lora.target_modules == ("all-linear",):
        return
    missing = [m for m in lora.target_modules if m != "lm_head" and not _found(m, known)]
    if missing:
        usual = [m for m in ("q_proj", "k_proj", "v_proj", "o_proj") if _found(m, known)]
        offered = ", ".join(usual or [m for m in known if m != "lm_head"][:4])
        yield stop(
            "lora_targets",
            f"The model has no module {', '.join(missing)}.",
            f"It has: {', '.join(known[:12])}.",
            Fix(f"Use {offered}", {"lora_targets": offered}),
        )


def _found(target: str, known: list[str]) -> bool:
    return any(module == target or module.endswith("." + target) for module in known)
