"""A version's lineage: its parents, the versions and runs made from it, and other versions of the same file."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Manager, QuerySet

from controlplane.catalogue.datasets.models import DatasetVersion

MAX_SHOWN = 20
NEWEST_RUNS = 20


@dataclass(frozen=True)
class Lineage:
    """The versions and runs that a version is related to."""

    parents: list[DatasetVersion]
    """The parent, its parent, and so on."""
    children: list[DatasetVersion]
    same_file: list[DatasetVersion]
    """Other versions of the identical source."""
    runs: list[Any]
    """The newest runs (runs.Run)."""
    run_count: int


def lineage(version: DatasetVersion) -> Lineage:
    return Lineage(
        parents=_parents(version),
        children=list(_shown(version.children).order_by("pk")[:MAX_SHOWN]),
        same_file=_same_file(version),
        runs=list(version.runs.order_by("-created_at", "-pk")[:NEWEST_RUNS]),
        run_count=version.runs.count(),
    )


def _same_file(version: DatasetVersion) -> list[DatasetVersion]:
    """List the other versions with this source, the oldest first. Repeated uploads are allowed and reported."""
    if not version.source_sha256:
        return []
    versions = _shown(DatasetVersion.objects).filter(source_sha256=version.source_sha256)
    return list(versions.exclude(pk=version.pk).order_by("pk")[:MAX_SHOWN])


def _parents(version: DatasetVersion) -> list[DatasetVersion]:
    parents: list[DatasetVersion] = []
    at = version.parent_id
    while at is not None and len(parents) < MAX_SHOWN:
        parent = _shown(DatasetVersion.objects).filter(pk=at).first()
        if parent is None:
            break
        parents.append(parent)
        at = parent.parent_id
    return parents


def _shown(versions: Manager[DatasetVersion]) -> QuerySet[DatasetVersion]:
    """Leave out versions of deleted datasets."""
    return versions.filter(dataset__deleted_at=None).select_related("dataset").defer("report")
