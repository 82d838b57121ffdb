"""Checks of a start from another run's checkpoint: why a run can't train its weights."""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.catalogue.hardware.models import Host
from runs.engine.checkpoints import Checkpoint
from runs.engine.spec import spec_of
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import LoraSpec
from workers.contract.stack.hardware_rules import start_problems
from workers.contract.wire.documents import ContractError, from_dict


def problems(
    checkpoint: Checkpoint | None,
    *,
    model: str,
    lora: LoraSpec | None,
    profile: Mapping[str, Any] | None,
    host: Host | None,
) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) for each problem of the checkpoint and each choice that doesn't fit it."""
    if checkpoint is None:
        yield "start_from", "No checkpoint has this folder. Copy the folder from the Checkpoints tab of its run."
        return
    if checkpoint.removed:
        yield "start_from", f"The trainer has since removed the checkpoint of step {checkpoint.step}. Choose another."
    yield from _conflicts_with_run(checkpoint, model, lora, profile)
    home = checkpoint.event.attempt.host
    if host and home and host != home and not (checkpoint.stored or _share_runs_folder(host, home)):
        yield "host", f"The checkpoint is on {home}. Choose that host, or leave this empty."


def _conflicts_with_run(
    checkpoint: Checkpoint, model: str, lora: LoraSpec | None, profile: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    try:
        spec = spec_of(checkpoint.event.run)
        hardware = from_dict(HardwareSpec, {"profile": "", **(profile or {})})
    except ContractError:
        return  # the host checks the checkpoint's files itself
    if model and model != spec.model.path:
        yield "start_from", f"This is a checkpoint of {spec.model.path}. Choose that model."
    if (spec.lora is None) != (lora is None):
        weights = "all weights" if spec.lora is None else "a LoRA"
        yield "start_from", f"The checkpoint’s run trained {weights}. Do the same, so that the weights fit."
    elif spec.lora and lora and _lora_shape(spec.lora) != _lora_shape(lora):
        targets = ", ".join(spec.lora.target_modules)
        yield (
            "start_from",
            f"The checkpoint’s LoRA has rank {spec.lora.r} on {targets}. Use the same settings.",
        )
    for problem in start_problems(hardware):
        yield "start_from", f"{problem.sentence} {problem.fix}"


def _lora_shape(lora: LoraSpec) -> tuple[int, frozenset[str]]:
    return lora.r, frozenset(lora.target_modules)


def _share_runs_folder(host: Host, home: Host) -> bool:
    folder = home.inventory.get("runs_folder")
    return bool(folder) and host.inventory.get("runs_folder") == folder
