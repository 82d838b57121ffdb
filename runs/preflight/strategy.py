"""How trainer processes share the training: what one process has nothing of, and what a strategy can't shard."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, note
from workers.contract import Offload, Strategy


def check(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    if hardware is None:
        return
    shards = hardware.strategy not in (Strategy.NONE, Strategy.DDP)
    if shards and hardware.processes == 1 and hardware.offload == Offload.NONE:
        yield note(
            "profile",
            f"{hardware.strategy} shares the training out between processes, and the profile has one.",
        )
    if hardware.strategy == Strategy.ZERO3 and draft.lora:
        yield note("use_lora", "ZeRO-3 also shards the frozen weights: each pass gathers them, which costs time.")
