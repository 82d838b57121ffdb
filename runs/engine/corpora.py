"""Corpora that runs search: what a host may fetch, and what may not be deleted."""

from __future__ import annotations

from controlplane.catalogue.datasets.models import CorpusVersion
from runs.engine.models import Run

MOST_NAMED = 5


def of_run(run: Run, sha256: str) -> CorpusVersion | None:
    named = (run.spec.get("episodes") or {}).get("corpora") or []
    if sha256 not in [one.get("sha256") for one in named]:
        return None
    return CorpusVersion.objects.filter(sha256=sha256, status=CorpusVersion.READY).select_related("corpus").first()


def users(version: CorpusVersion) -> list[str]:
    """Runs that search it, in words."""
    runs = Run.every.filter(spec__icontains=version.sha256).order_by("-pk") if version.sha256 else Run.every.none()
    names = [f"the run {name}" for name in runs.values_list("name", flat=True)[: MOST_NAMED + 1]]
    return [*names[:MOST_NAMED], "other runs"] if len(names) > MOST_NAMED else names
