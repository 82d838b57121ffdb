"""How the policy reaches its vLLM server: which roads take a LoRA, and which take quantized weights."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, note, stop
from workers.contract import Quantization, WeightSync


def check(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if draft.hardware is None or server is None or server.weight_sync != WeightSync.NCCL:
        return
    if draft.hardware.quantization != Quantization.NONE:
        yield stop(
            "profile",
            f"The profile trains on a base model in {draft.hardware.quantization}, and NCCL would stream its packed "
            "weights into a server that holds whole ones.",
            "Choose a profile with LoRA hot-swap, or one without quantization.",
        )
    elif draft.lora:
        yield note(
            "use_lora",
            "With NCCL the adapter is merged into the weights for each update, and all of them travel.",
            "LoRA hot-swap sends the adapter alone.",
        )
