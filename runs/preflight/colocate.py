"""vLLM inside the trainer: what its sleep mode can't be combined with, and how ranks share it."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop
from workers.contract import Rollout

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"


def check(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    if hardware is None or hardware.rollout != Rollout.COLOCATE:
        return
    if hardware.colocate_sleep and "expandable_segments:True" in hardware.environment.get(ALLOCATOR, ""):
        yield stop(
            "profile",
            "vLLM's sleep mode keeps a memory pool of its own, which torch refuses together with expandable_segments.",
            f"Take expandable_segments out of {ALLOCATOR} in the profile, or turn its sleep mode off.",
        )
    size = hardware.colocate_tensor_parallel
    if size > 1 and hardware.processes % size:
        yield stop(
            "profile",
            f"A colocated vLLM over {size} GPUs can't be shared out between {hardware.processes} trainer processes.",
            "The tensor parallelism must divide the processes.",
        )
