"""From a composition of parts and limits to a version: a new environment, a changed one, a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.environments.models import Environment, EnvironmentVersion
from controlplane.environments.queries import free_name
from controlplane.environments.reading import limits_of
from workers.contract import ContractError, from_dict, to_dict
from workers.contract.episodes import PartSpec
from workers.environments import LIBRARY


@dataclass(frozen=True)
class Composition:
    """The content of a version."""

    parts: Sequence[dict[str, Any]]
    limits: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, version: EnvironmentVersion) -> Composition:
        return cls(version.parts, version.limits)

    def same_as(self, other: Composition) -> bool:
        """Whether both are the same environment; missing parameters and limits are defaults."""
        content = (limits_of(self.limits), [_full(part) for part in self.parts])
        return content == (limits_of(other.limits), [_full(part) for part in other.parts])


def make(name: str, composition: Composition, **columns: Any) -> EnvironmentVersion:
    """Create an environment with its first version. `columns`: the environment's owner and description, the version's
    note.

    IntegrityError: the name is taken.
    """
    note, owner = columns.pop("note", ""), columns.get("owner")
    with transaction.atomic():
        environment = Environment.objects.create(name=name, **columns)
        return _add(environment, 1, composition, owner, note)


def save(
    environment: Environment, composition: Composition, *, by: Any = None, note: str = ""
) -> tuple[EnvironmentVersion, bool]:
    """The newest version with this content, and whether this call created it."""
    with transaction.atomic():
        # Locked, so that the second of two concurrent saves sees the first one's version.
        Environment.objects.select_for_update().get(pk=environment.pk)
        newest = environment.newest()
        if composition.same_as(Composition.of(newest)):
            return newest, False
        return _add(environment, newest.number + 1, composition, by, note), True


def copy(version: EnvironmentVersion, owner: Any) -> EnvironmentVersion:
    """Copy a version into a new environment under the next free name, even if another user takes it meanwhile."""
    environment = version.environment
    while True:
        name = free_name(f"{environment.name[:75]} copy")
        try:
            return make(
                name,
                Composition.of(version),
                owner=owner,
                description=environment.description,
                note=f"Copied from {environment.name} v{version.number}.",
            )
        except IntegrityError:
            if not Environment.objects.filter(name=name).exists():
                raise  # a conflict other than the name


def _add(environment: Environment, number: int, content: Composition, by: Any, note: str) -> EnvironmentVersion:
    return EnvironmentVersion.objects.create(
        environment=environment,
        number=number,
        parts=list(content.parts),
        limits=to_dict(limits_of(content.limits)),
        note=note[:200],
        created_by=by,
    )


def _full(part: dict[str, Any]) -> dict[str, Any]:
    try:
        spec = to_dict(from_dict(PartSpec, part))
    except ContractError:
        return part
    entry = LIBRARY.get(spec["function"])
    return {**spec, "params": (entry.defaults() if entry else {}) | spec["params"]}
