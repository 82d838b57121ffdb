"""Environments that search a corpus, which may not be deleted then."""

from __future__ import annotations

from controlplane.catalogue.datasets.corpora.queries import titles_in
from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.environments.models import EnvironmentVersion

MOST_NAMED = 5


def users(corpus: CorpusVersion) -> list[str]:
    """Environments with a version that searches it, in words."""
    title, found = str(corpus), dict[str, None]()
    versions = EnvironmentVersion.objects.select_related("environment").order_by("environment__name", "-number")
    for version in versions:
        if title in titles_in(version.specs):
            found[f"the environment {version.environment.name}"] = None
    names = list(found)
    return [*names[:MOST_NAMED], "other environments"] if len(names) > MOST_NAMED else names
