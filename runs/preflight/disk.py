"""Room for checkpoints on the host."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn

LEAST_MIB = 512
"""Logs, the dataset and metrics; below this a host takes nothing."""


def check(draft: Draft) -> Iterator[Finding]:
    known = [host for host in draft.hosts if host.disk_free_mib is not None]
    if not known or len(known) < len(draft.hosts):
        return
    best = max(known, key=lambda host: host.disk_free_mib or 0)
    free = best.disk_free_mib or 0
    if free < LEAST_MIB:
        yield stop("host", f"{best.name} has {free:,} MiB of disk left.", "Free some disk there first.")
        return
    one = checkpoint_mib(draft)
    kept = draft.value("save_total_limit")
    if one is None or not kept:
        return
    # TRL writes the new checkpoint before it deletes the oldest.
    needed = one * (kept + 1)
    if needed > free - LEAST_MIB:
        yield warn(
            "save_total_limit",
            f"{kept + 1} checkpoints of about {one:,.0f} MiB need more than the {free:,} MiB left on {best.name}.",
            "Keep fewer, train a LoRA, or free some disk.",
            *([Fix("Keep 1", {"save_total_limit": "1"})] if kept > 1 else []),
        )


def checkpoint_mib(draft: Draft) -> float | None:
    """About what one checkpoint takes: weights and two Adam moments of what is trained."""
    parameters = (draft.inspection or {}).get("parameters")
    if not isinstance(parameters, int):
        return None
    if draft.lora:
        # A rank-16 adapter on the attention is around 0.5% of the weights; it grows with the rank.
        parameters = int(parameters * 0.005 * draft.lora.r / 16)
    return parameters * 4 * 3 / 2**20
