"""The host's disk: enough for the run's files and its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.templatetags.figures import size_in_words
from runs.preflight.draft import Draft
from runs.preflight.estimating import settings_of, shape_for
from runs.preflight.finding import Finding, Fix, stop, warn
from workers.contract.memory import checkpoint_gib

LEAST_MIB = 512
"""Logs, the dataset and metrics; a host with less free space takes no run."""


def check(draft: Draft) -> Iterator[Finding]:
    measured = [host for host in draft.hosts if host.disk_free_mib is not None]
    if not measured or len(measured) < len(draft.hosts):
        return
    best = max(measured, key=lambda host: host.disk_free_mib or 0)
    free = best.disk_free_mib or 0
    if free < LEAST_MIB:
        yield stop("host", f"{best.name} has {_mib(free)} of disk left.", "Free some disk there first.")
        return
    checkpoint_size = _checkpoint_mib(draft)
    limit = draft.value("save_total_limit")
    if checkpoint_size is None or not limit:
        return
    # TRL writes the new checkpoint before it deletes the oldest one.
    needed = checkpoint_size * (limit + 1)
    if needed > free - LEAST_MIB:
        yield warn(
            "save_total_limit",
            f"{limit + 1} checkpoints of about {_mib(checkpoint_size)} each take more than the {_mib(free)} left on "
            f"{best.name}.",
            "Keep fewer, or free some disk." if draft.lora else "Keep fewer, train a LoRA, or free some disk.",
            *([Fix("Keep 1", {"save_total_limit": "1"})] if limit > 1 else []),
        )


def _mib(amount: float) -> str:
    return size_in_words(amount * 2**20)


def _checkpoint_mib(draft: Draft) -> float | None:
    """About the size of a checkpoint: trained weights and the optimizer's state of them."""
    shape = shape_for(draft.inspection)
    if shape is None or draft.hardware is None:
        return None
    return 1024 * checkpoint_gib(shape, draft.hardware, settings_of(draft, draft.hardware))
