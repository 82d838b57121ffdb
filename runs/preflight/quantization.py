"""Quantized base models: they are frozen, so a LoRA trains; and a model is quantized once."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop
from workers.contract import Quantization

_LORA = Fix("Train a LoRA", {"use_lora": "on"})


def check(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    brought = (draft.inspection or {}).get("quantization")
    if brought and draft.lora is None:
        yield stop(
            "use_lora",
            f"The model's weights are quantized ({brought}): they can't be trained, only an adapter on them.",
            "Train a LoRA, or choose the model in full precision.",
            _LORA,
        )
    if hardware is None or hardware.quantization == Quantization.NONE:
        return
    bits = hardware.quantization
    if draft.lora is None and not brought:
        yield stop(
            "use_lora",
            f"The profile loads the base model in {bits}, where its weights can't be trained.",
            "Train a LoRA on it, or choose a profile without quantization.",
            _LORA,
        )
    if brought:
        yield stop(
            "profile",
            f"The model is quantized already ({brought}), and the profile would quantize it again to {bits}.",
            "Choose a profile without quantization, or the model in full precision.",
        )
