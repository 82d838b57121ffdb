"""Finds environments that use a corpus; such a corpus can't be deleted."""

from __future__ import annotations

from controlplane.catalogue.datasets.corpora.queries import titles_in
from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.environments.models import EnvironmentVersion

MOST_NAMED = 5


def users(corpus: CorpusVersion) -> list[str]:
    """The environments with a version that searches a corpus, in words."""
    title, names = str(corpus), dict[str, None]()
    versions = EnvironmentVersion.objects.select_related("environment").order_by("environment__name", "-number")
    for version in versions:
        if title in titles_in(version.specs):
            names[f"the environment {version.environment.name}"] = None
    users = list(names)
    return [*users[:MOST_NAMED], "other environments"] if len(users) > MOST_NAMED else users
