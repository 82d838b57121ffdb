"""Starts from another run's checkpoint: problems of a run that would train its weights."""

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
    """Yield (field, sentence) for each of the other choices that doesn't fit the checkpoint."""
    if checkpoint is None:
        yield "start_from", "There is no such checkpoint. Copy its folder from the Checkpoints tab of its run."
        return
    if checkpoint.removed:
        yield "start_from", f"The trainer has removed the checkpoint of step {checkpoint.step} since. Choose another."
    yield from _against_its_run(checkpoint, model, lora, profile)
    home = checkpoint.event.attempt.host
    if host and home and host != home and not (checkpoint.stored or _shared(host, home)):
        yield "host", f"The checkpoint is on {home}: choose that host, or leave this empty."


def _against_its_run(
    checkpoint: Checkpoint, model: str, lora: LoraSpec | None, profile: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    try:
        spec = spec_of(checkpoint.event.run)
        hardware = from_dict(HardwareSpec, {"profile": "", **(profile or {})})
    except ContractError:
        return  # the host checks its files again
    if model and model != spec.model.path:
        yield "start_from", f"It is a checkpoint of {spec.model.path}: choose that model."
    if (spec.lora is None) != (lora is None):
        weights = "all weights" if spec.lora is None else "a LoRA"
        yield "start_from", f"Its run trained {weights}: do the same, so that the weights fit."
    elif spec.lora and lora and _shape(spec.lora) != _shape(lora):
        targets = ", ".join(spec.lora.target_modules)
        yield "start_from", f"Its LoRA has rank {spec.lora.r} on {targets}: set the same, so that the weights fit."
    for problem in start_problems(hardware):
        yield "start_from", f"{problem.sentence} {problem.fix}"


def _shape(lora: LoraSpec) -> tuple[int, frozenset[str]]:
    return lora.r, frozenset(lora.target_modules)


def _shared(host: Host, home: Host) -> bool:
    folder = home.inventory.get("runs_folder")
    return bool(folder) and host.inventory.get("runs_folder") == folder
