"""Finds environments that use a corpus; such a corpus can't be deleted."""

from controlplane.catalogue.datasets.corpora.queries import titles_in
from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.environments.models import EnvironmentVersion

MOST_NAMED = 5


def users(corpus: CorpusVersion) -> list[str]:
    """Name the environments with a version that searches a corpus."""
    title = str(corpus)
    versions = EnvironmentVersion.objects.select_related("environment").order_by("environment__name", "-number")
    using = (version.environment.name for version in versions if title in titles_in(version.specs))
    users = [f"the environment {name}" for name in dict.fromkeys(using)]
    return [*users[:MOST_NAMED], "other environments"] if len(users) > MOST_NAMED else users
