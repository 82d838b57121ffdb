"""Storage of components as a version of a new, changed or cloned config."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.rewards.models import FAILED_SHARE, SUM_THEN_NORMALIZE, RewardConfig, RewardVersion
from controlplane.catalogue.versioned import saving
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.documents import to_dict


@dataclass(frozen=True)
class RewardComposition(saving.Composition):
    components: Sequence[dict[str, Any]]
    aggregation: str = SUM_THEN_NORMALIZE
    failed_share: float = FAILED_SHARE
    kind = RewardVersion.kind

    @classmethod
    def of(cls, version: RewardVersion) -> "RewardComposition":
        return cls(version.components, version.aggregation, version.failed_share)

    def columns(self) -> dict[str, Any]:
        return {
            "components": list(self.components),
            "aggregation": self.aggregation,
            "failed_share": self.failed_share,
        }


def part_of(spec: RewardSpec) -> dict[str, Any]:
    """Return a component as stored in versions and YAML, with `per_turn` only if it scores each turn, and `applies_to`
    only if it is limited to some rows."""
    part = to_dict(spec)
    for name in ("per_turn", "applies_to"):
        if not part[name]:
            del part[name]
    return part


def make(name: str, composition: RewardComposition | Sequence[dict[str, Any]], **columns: Any) -> RewardVersion:
    return saving.make(RewardVersion, name, _composition(composition), **columns)


def save(
    config: RewardConfig, composition: RewardComposition | Sequence[dict[str, Any]], *, by: Any = None, note: str = ""
) -> tuple[RewardVersion, bool]:
    return saving.save(RewardVersion, config, _composition(composition), by=by, note=note)


def clone(version: RewardVersion, owner: Any) -> RewardVersion:
    return saving.clone(version, RewardComposition.of(version), owner)


def _composition(content: RewardComposition | Sequence[dict[str, Any]]) -> RewardComposition:
    return content if isinstance(content, RewardComposition) else RewardComposition(content)
