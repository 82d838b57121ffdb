"""The kinds of engines that machines come from, by name."""

from __future__ import annotations

from runs.engine.machines import slurm
from runs.engine.machines.provider import EngineKind
from runs.engine.machines.skypilot import provider as skypilot

KINDS: dict[str, EngineKind] = {kind.name: kind for kind in (slurm.KIND, skypilot.KIND)}
