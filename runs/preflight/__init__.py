"""Will this launch work? One module per check; a check reads a Draft and yields findings, and touches nothing.

A finding with grade STOP keeps the run from being launched. Findings of fields come back in the order of the form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runs.preflight import (
    arithmetic,
    attached,
    choices,
    combinations,
    data,
    deviations,
    disk,
    evaluation,
    hosts,
    lengths,
    limits,
    lora,
    memory,
    model,
    names,
    packages,
    parallel,
    ports,
    profile,
    quantization,
    rewards,
    sandbox,
    secrets,
    steps,
    strategy,
    weights,
)
from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, Grade

__all__ = ["CHECKS", "Draft", "Finding", "Fix", "Grade", "blocks", "check"]

Check = Callable[[Draft], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    limits.check,
    model.check,
    data.check,
    rewards.check,
    secrets.check,
    profile.check,
    hosts.check,
    sandbox.check,
    packages.check,
    memory.check,
    parallel.check,
    strategy.check,
    quantization.check,
    weights.check,
    ports.check,
    attached.check,
    disk.check,
    names.check,
    choices.check,
    arithmetic.check,
    steps.check,
    evaluation.check,
    lengths.check,
    combinations.check,
    lora.check,
    deviations.check,
)

_ORDER = {Grade.STOP: 0, Grade.WARN: 1, Grade.NOTE: 2}


def check(draft: Draft) -> list[Finding]:
    """Every finding, the worst first."""
    found = [finding for one in CHECKS for finding in one(draft)]
    return sorted(found, key=lambda f: _ORDER[f.grade])


def blocks(findings: Iterable[Finding]) -> bool:
    return any(f.grade == Grade.STOP for f in findings)
