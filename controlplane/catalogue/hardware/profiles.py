"""Hardware profiles as plain values, and the settings that a launch uses from one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile
from workers.contract.run.batch_rules import Batch, BatchRule, problems, repairs
from workers.contract.run.hardware import BATCH_FIELDS, HardwareSpec, Rollout
from workers.contract.run.problem import Problem
from workers.contract.run.spec import LoraSpec
from workers.contract.stack.deepspeed import number_problems
from workers.contract.stack.hardware_rules import problems_with_lora
from workers.contract.wire.documents import from_dict, to_dict

DIVISION_FIELDS = ("per_device_train_batch_size", "gradient_accumulation_steps")
"""Fields whose product is the number of completions per step in each process."""


@dataclass(frozen=True)
class Profile:
    name: str
    description: str
    spec: HardwareSpec
    lora: LoraSpec | None = None
    batch: dict[str, int] = field(default_factory=dict)
    """Values of BATCH_FIELDS; a missing one has no default."""

    def columns(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "spec": to_dict(self.spec),
            "lora": to_dict(self.lora) if self.lora else None,
            "batch": self.batch,
        }


def profile_of(row: HardwareProfile) -> Profile:
    """Build a profile from its row. Raises ContractError if the row has an older contract."""
    lora = from_dict(LoraSpec, row.lora, at="lora") if row.lora else None
    spec = from_dict(HardwareSpec, {**row.spec, "profile": row.name}, at="hardware")
    return Profile(row.name, row.description, spec, lora, {k: v for k, v in row.batch.items() if k in BATCH_FIELDS})


def archive(row: HardwareProfile, *, archived: bool) -> bool:
    """Archive or unarchive a profile, and return whether anything changed."""
    if archived == (row.archived_at is not None):
        return False
    row.archived_at = timezone.now() if archived else None
    row.save(update_fields=["archived_at"])
    return True


def launch_values(row: HardwareProfile) -> dict[str, str]:
    profile = profile_of(row)
    values = {name: str(value) for name, value in profile.batch.items()}
    if profile.lora is None:
        return {**values, "use_lora": ""}
    return {
        **values,
        "use_lora": "on",
        "lora_r": str(profile.lora.r),
        "lora_alpha": str(profile.lora.alpha),
        "lora_dropout": f"{profile.lora.dropout:g}",
        "lora_targets": ", ".join(profile.lora.target_modules),
    }


def step_of(batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a process's completions per step, however they are divided into passes, and the batch's other fields."""
    sizes = [batch.get(name) for name in DIVISION_FIELDS]
    set_sizes = [size for size in sizes if isinstance(size, int)]
    other_fields = {name: batch[name] for name in BATCH_FIELDS if name in batch and name not in DIVISION_FIELDS}
    return prod(set_sizes) if len(set_sizes) == len(DIVISION_FIELDS) else sizes, other_fields


def profile_problems(profile: Profile) -> list[Problem]:
    """List the problems of a profile's hardware, LoRA, batch and sequence lengths."""
    return [
        *problems_with_lora(profile.spec, profile.lora),
        *number_problems(profile.spec, profile.batch),
        *_arithmetic(profile),
        *_lengths(profile),
    ]


def _arithmetic(profile: Profile) -> Iterator[Problem]:
    batch_values = profile.batch
    batch_fields = {f.name for f in fields(Batch)}
    sizes: dict[str, Any] = {name: value for name, value in batch_values.items() if name in batch_fields}
    batch = Batch(**sizes, processes=max(profile.spec.processes, 1))
    for problem in problems(batch):
        # Sizes that the profile leaves open can't be checked yet.
        is_complete = {"per_device_train_batch_size", "num_generations"} <= set(batch_values)
        if is_complete or (problem.rule == BatchRule.TWO_OR_MORE and "num_generations" in batch_values):
            changes = repairs(batch, problem.rule)
            nearest_values = [f"{name.replace('_', ' ')} {value}" for name, value in changes if name in batch_values]
            fix = f"Nearest valid values: {', '.join(nearest_values[:3])}." if nearest_values else ""
            yield Problem(problem.field, problem.sentence, fix)


def _lengths(profile: Profile) -> Iterator[Problem]:
    spec, completion_length = profile.spec, profile.batch.get("max_completion_length")
    server = spec.vllm_server if spec.vllm_server and not spec.vllm_server.attached else None
    limits = {
        "colocate_max_model_len": spec.colocate_max_model_len if spec.rollout == Rollout.COLOCATE else None,
        "server_max_model_len": server.max_model_len if server else None,
    }
    for name, limit in limits.items():
        if completion_length and limit is not None and 0 < limit <= completion_length:
            sentence = f"{limit:,} tokens leave no room for a prompt if completions may have {completion_length:,}."
            yield Problem(name, sentence)
