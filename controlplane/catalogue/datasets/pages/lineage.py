"""Lineage of a version: its ancestors, the versions and runs made from it, and other versions of the same file."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Manager, QuerySet

from controlplane.catalogue.datasets.models import DatasetVersion

MAX_SHOWN = 20
MAX_RUNS = 20


@dataclass(frozen=True)
class Lineage:
    """Versions and runs that a version is related to."""

    parents: list[DatasetVersion]
    """Ancestors: the parent, its parent, and so on."""
    children: list[DatasetVersion]
    same_file: list[DatasetVersion]
    """Other versions of the identical source."""
    runs: list[Any]
    """Newest runs (runs.Run) that train on the version."""
    run_count: int


def lineage(version: DatasetVersion) -> Lineage:
    return Lineage(
        parents=_parents(version),
        children=list(_with_dataset(version.children).order_by("pk")[:MAX_SHOWN]),
        same_file=_same_file(version),
        runs=list(version.runs.order_by("-created_at", "-pk")[:MAX_RUNS]),
        run_count=version.runs.count(),
    )


def _same_file(version: DatasetVersion) -> list[DatasetVersion]:
    """List the other versions with this source, oldest first. Repeated uploads are allowed and reported."""
    if not version.source_sha256:
        return []
    versions = _with_dataset(DatasetVersion.objects).filter(source_sha256=version.source_sha256)
    return list(versions.exclude(pk=version.pk).order_by("pk")[:MAX_SHOWN])


def _parents(version: DatasetVersion) -> list[DatasetVersion]:
    parents: list[DatasetVersion] = []
    parent_id = version.parent_id
    while parent_id is not None and len(parents) < MAX_SHOWN:
        parent = _with_dataset(DatasetVersion.objects).filter(pk=parent_id).first()
        if parent is None:
            break
        parents.append(parent)
        parent_id = parent.parent_id
    return parents


def _with_dataset(versions: Manager[DatasetVersion]) -> QuerySet[DatasetVersion]:
    return versions.filter(dataset__deleted_at=None).select_related("dataset").defer("report")
