"""From a composition of components to a version: a new config, a changed one, a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.rewards.models import FAILED_SHARE, SUM_THEN_NORMALIZE, RewardConfig, RewardVersion
from controlplane.rewards.queries import free_name
from workers.contract import ContractError, RewardSpec, from_dict, to_dict
from workers.rewards import LIBRARY


@dataclass(frozen=True)
class Composition:
    """The content of a version."""

    components: Sequence[dict[str, Any]]
    aggregation: str = SUM_THEN_NORMALIZE
    failed_share: float = FAILED_SHARE

    @classmethod
    def of(cls, version: RewardVersion) -> Composition:
        return cls(version.components, version.aggregation, version.failed_share)

    def same_as(self, other: Composition) -> bool:
        """Whether both score the same; missing weights and parameters are defaults."""
        content = (self.aggregation, self.failed_share, [_full(part) for part in self.components])
        return content == (other.aggregation, other.failed_share, [_full(part) for part in other.components])


def part_of(spec: RewardSpec) -> dict[str, Any]:
    """A component as versions and YAML have it; that it scores each turn is named where it does."""
    part = to_dict(spec)
    if not spec.per_turn:
        del part["per_turn"]
    return part


def make(name: str, composition: Composition | Sequence[dict[str, Any]], **columns: Any) -> RewardVersion:
    """Create a config with its first version. `columns`: the config's owner and description, the version's note.

    IntegrityError: the name is taken.
    """
    note, owner = columns.pop("note", ""), columns.get("owner")
    with transaction.atomic():
        config = RewardConfig.objects.create(name=name, **columns)
        return _add(config, 1, composition, owner, note)


def save(
    config: RewardConfig, composition: Composition | Sequence[dict[str, Any]], *, by: Any = None, note: str = ""
) -> tuple[RewardVersion, bool]:
    """The newest version with these scores, and whether this call created it."""
    with transaction.atomic():
        # Locked, so that the second of two concurrent saves sees the first one's version.
        RewardConfig.objects.select_for_update().get(pk=config.pk)
        newest = config.newest()
        content = composition if isinstance(composition, Composition) else Composition(composition)
        if content.same_as(Composition.of(newest)):
            return newest, False
        return _add(config, newest.number + 1, content, by, note), True


def copy(version: RewardVersion, owner: Any) -> RewardVersion:
    """Copy a version into a new config under the next free name, even if another user takes that name meanwhile."""
    config = version.config
    while True:
        name = free_name(f"{config.name[:75]} copy")
        try:
            return make(
                name,
                Composition.of(version),
                owner=owner,
                description=config.description,
                note=f"Copied from {config.name} v{version.number}.",
            )
        except IntegrityError:
            if not RewardConfig.objects.filter(name=name).exists():
                raise  # a conflict other than the name


def _add(
    config: RewardConfig, number: int, composition: Composition | Sequence[dict[str, Any]], by: Any, note: str
) -> RewardVersion:
    content = composition if isinstance(composition, Composition) else Composition(composition)
    return RewardVersion.objects.create(
        config=config,
        number=number,
        components=list(content.components),
        aggregation=content.aggregation,
        failed_share=content.failed_share,
        note=note[:200],
        created_by=by,
    )


def _full(part: dict[str, Any]) -> dict[str, Any]:
    try:
        spec = to_dict(from_dict(RewardSpec, part))
    except ContractError:
        return part
    reward = LIBRARY.get(spec["function"])
    return {**spec, "params": (reward.defaults() if reward else {}) | spec["params"]}
