"""Storage of parts and limits as a version of a new, changed or cloned environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from controlplane.catalogue.environments.models import EnvironmentVersion, limits_of
from controlplane.catalogue.versioned import saving
from workers.contract.wire.documents import to_dict


@dataclass(frozen=True)
class EnvironmentComposition(saving.Composition):
    parts: Sequence[dict[str, Any]]
    limits: Mapping[str, Any] = field(default_factory=dict)
    kind = EnvironmentVersion.kind

    @classmethod
    def of(cls, version: EnvironmentVersion) -> "EnvironmentComposition":
        return cls(version.parts, version.limits)

    def columns(self) -> dict[str, Any]:
        return {"parts": list(self.parts), "limits": to_dict(limits_of(self.limits))}


make = partial(saving.make, EnvironmentVersion)
save = partial(saving.save, EnvironmentVersion)


def clone(version: EnvironmentVersion, owner: Any) -> EnvironmentVersion:
    return saving.clone(version, EnvironmentComposition.of(version), owner)
