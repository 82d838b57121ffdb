"""The kinds of engines that machines come from, by name."""

from __future__ import annotations

from runs.machines import slurm
from runs.machines.provider import Kind
from runs.machines.skypilot import provider as skypilot

KINDS: dict[str, Kind] = {kind.name: kind for kind in (slurm.KIND, skypilot.KIND)}
