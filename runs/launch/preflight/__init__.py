"""Preflight: checks of a launch before it starts. One module per subject; checks read a Draft, yield findings and have
no side effects.

A finding of grade STOP blocks the launch. Findings of one grade are in the order of the form.
"""

from collections.abc import Callable, Iterable

from runs.launch.preflight import hosts, memory, room
from runs.launch.preflight.checks import (
    batch,
    data,
    disk,
    episodes,
    limited_rewards,
    limits,
    lora,
    machine,
    model,
    overlapping,
    packages,
    profile,
    rewards,
    sampling,
    servers,
    training,
    traps,
)
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Grade

Check = Callable[[Draft], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    hosts.check_limits,
    model.check,
    model.check_folder,
    data.check,
    data.check_mix,
    rewards.check,
    rewards.check_secrets,
    limited_rewards.check,
    episodes.check_rewards,
    episodes.check,
    profile.check,
    hosts.check,
    hosts.check_sandbox,
    packages.check,
    packages.check_sinks,
    machine.check,
    memory.check,
    servers.check_parallelism,
    profile.check_strategy,
    model.check_quantization,
    lora.check_weights,
    servers.check_ports,
    servers.check_attached,
    servers.check_warm,
    disk.check,
    training.check_names,
    training.check_values,
    batch.check_sizes,
    batch.check_steps,
    room.check,
    room.check_guide,
    data.check_evaluation,
    model.check_lengths,
    training.check_combinations,
    data.check_choice,
    overlapping.check_rewards,
    overlapping.check_ahead,
    lora.check,
    limits.check,
    sampling.check,
    traps.check,
    profile.check_deviations,
)

ORDER = {Grade.STOP: 0, Grade.WARN: 1, Grade.NOTE: 2}


def check(draft: Draft) -> list[Finding]:
    """Run every check on a launch and return the findings, worst first."""
    findings = [finding for check_ in CHECKS for finding in check_(draft)]
    return sorted(findings, key=lambda f: ORDER[f.grade])


def blocks(findings: Iterable[Finding]) -> bool:
    return any(f.grade == Grade.STOP for f in findings)
