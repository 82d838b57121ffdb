"""Quantized base models: they are frozen, so a LoRA trains; and a model is quantized once."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn
from workers.contract import Quantization, Rollout, Strategy

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
    if bits == Quantization.INT8 and hardware.rollout == Rollout.COLOCATE:
        yield stop(
            "profile",
            "A colocated vLLM takes its weights from the trainer and can't take 8-bit ones.",
            "Choose a profile with 4-bit quantization, or one with completions from the trainer or a server.",
        )
    if hardware.strategy in (Strategy.ZERO3, Strategy.FSDP2):
        yield warn(
            "profile",
            f"{hardware.strategy} shards the base model, and packed {bits} weights were not seen to come out of that "
            "whole.",
            "Choose DDP or ZeRO-2: a quantized model is small enough for each GPU.",
        )
