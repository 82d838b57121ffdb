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
    """What a version is made of."""

    components: Sequence[dict[str, Any]]
    aggregation: str = SUM_THEN_NORMALIZE
    failed_share: float = FAILED_SHARE

    @classmethod
    def of(cls, version: RewardVersion) -> Composition:
        return cls(version.components, version.aggregation, version.failed_share)

    def same_as(self, other: Composition) -> bool:
        """Whether it scores in the same way; a weight or a parameter left out is the default."""
        mine = (self.aggregation, self.failed_share, [_full(part) for part in self.components])
        return mine == (other.aggregation, other.failed_share, [_full(part) for part in other.components])


def make(name: str, composition: Composition | Sequence[dict[str, Any]], **columns: Any) -> RewardVersion:
    """A new config with its first version. `columns`: owner and description of the config, note of the version.

    IntegrityError: the name is taken.
    """
    note, owner = columns.pop("note", ""), columns.get("owner")
    with transaction.atomic():
        config = RewardConfig.objects.create(name=name, **columns)
        return _add(config, 1, composition, owner, note)


def save(
    config: RewardConfig, composition: Composition | Sequence[dict[str, Any]], *, by: Any = None, note: str = ""
) -> tuple[RewardVersion, bool]:
    """The newest version that scores like this, and whether this call made it."""
    with transaction.atomic():
        # Locked, so that of two who save at once the second sees what the first has made.
        RewardConfig.objects.select_for_update().get(pk=config.pk)
        newest = config.newest()
        wanted = composition if isinstance(composition, Composition) else Composition(composition)
        if wanted.same_as(Composition.of(newest)):
            return newest, False
        return _add(config, newest.number + 1, wanted, by, note), True


def copy(version: RewardVersion, owner: Any) -> RewardVersion:
    """A config of its own that begins with this version, under the next free name, also when somebody takes that one
    between the look and the save."""
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
                raise  # something else than the name


def _add(
    config: RewardConfig, number: int, composition: Composition | Sequence[dict[str, Any]], by: Any, note: str
) -> RewardVersion:
    wanted = composition if isinstance(composition, Composition) else Composition(composition)
    return RewardVersion.objects.create(
        config=config,
        number=number,
        components=list(wanted.components),
        aggregation=wanted.aggregation,
        failed_share=wanted.failed_share,
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
