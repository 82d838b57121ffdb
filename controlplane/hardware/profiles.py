"""Hardware profiles as plain values, and what a launch takes over from one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.profile_fields import BATCH_FIELDS, HELP
from controlplane.hardware.profile_rules import problems, problems_with_lora
from workers.contract import HardwareSpec, LoraSpec, from_dict, to_dict

__all__ = ["BATCH_FIELDS", "HELP", "Profile", "launch_values", "problems", "problems_with_lora", "profile_of"]


@dataclass(frozen=True)
class Profile:
    name: str
    description: str
    spec: HardwareSpec
    lora: LoraSpec | None = None
    batch: dict[str, int] = field(default_factory=dict)
    """Of BATCH_FIELDS; what isn't here is left open."""

    def columns(self) -> dict[str, Any]:
        """As a HardwareProfile holds it."""
        return {
            "name": self.name,
            "description": self.description,
            "spec": to_dict(self.spec),
            "lora": to_dict(self.lora) if self.lora else None,
            "batch": self.batch,
        }


def profile_of(row: HardwareProfile) -> Profile:
    """Raises ContractError for a row that the contract has outgrown."""
    lora = from_dict(LoraSpec, row.lora, at="lora") if row.lora else None
    spec = from_dict(HardwareSpec, {**row.spec, "profile": row.name}, at="hardware")
    return Profile(row.name, row.description, spec, lora, {k: v for k, v in row.batch.items() if k in BATCH_FIELDS})


def launch_values(row: HardwareProfile) -> dict[str, str]:
    """Fields of the New run form -> what this profile was made for."""
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
