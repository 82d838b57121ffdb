"""The kinds of engines that machines come from, by name."""

from __future__ import annotations

from runs.machines import slurm
from runs.machines.provider import Kind

KINDS: dict[str, Kind] = {kind.name: kind for kind in (slurm.KIND,)}
