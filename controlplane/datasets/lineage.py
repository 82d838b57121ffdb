"""A version's lineage: its parents, the versions and runs made from it, and other versions of the same file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.datasets.models import DatasetVersion

SHOWN = 20
NEWEST_RUNS = 20


@dataclass(frozen=True)
class Lineage:
    parents: list[DatasetVersion]
    """The version that it was made of, that one's own, and so on."""
    children: list[DatasetVersion]
    same_file: list[DatasetVersion]
    """Other versions of the very same source."""
    runs: list[Any]
    """runs.Run, the newest ones."""
    run_count: int


def lineage(version: DatasetVersion) -> Lineage:
    return Lineage(
        parents=_parents(version),
        children=list(version.children.select_related("dataset").defer("report").order_by("pk")[:SHOWN]),
        same_file=recognised(version.source_sha256, besides=version),
        runs=list(version.runs.order_by("-created_at", "-pk")[:NEWEST_RUNS]),
        run_count=version.runs.count(),
    )


def recognised(source_sha256: str, *, besides: DatasetVersion | None = None) -> list[DatasetVersion]:
    """Versions whose source is this very file, the oldest first. The same file again is allowed, and told."""
    if not source_sha256:
        return []
    same = DatasetVersion.objects.filter(source_sha256=source_sha256).select_related("dataset").defer("report")
    if besides is not None:
        same = same.exclude(pk=besides.pk)
    return list(same.order_by("pk")[:SHOWN])


def _parents(version: DatasetVersion) -> list[DatasetVersion]:
    found: list[DatasetVersion] = []
    at = version.parent_id
    while at is not None and len(found) < SHOWN:
        parent = DatasetVersion.objects.select_related("dataset").defer("report").get(pk=at)
        found.append(parent)
        at = parent.parent_id
    return found
