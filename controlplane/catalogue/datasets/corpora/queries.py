"""Access to corpora for pages, the forms of tools, the playground, and the specs of runs."""

from collections.abc import Iterable
from pathlib import Path

from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import CorpusVersion
from workers.contract.run import corpora
from workers.contract.run.episodes import CorpusSpec, PartSpec
from workers.environments.library import LIBRARY
from workers.rewards.tools import no_corpora


def corpora_for(request: HttpRequest) -> QuerySet[CorpusVersion]:
    """Select all versions if a user is signed in, otherwise none."""
    versions = CorpusVersion.objects.all() if request.user.is_authenticated else CorpusVersion.objects.none()
    return versions.select_related("corpus", "corpus__owner", "dataset_version__dataset")


def corpus_for(request: HttpRequest, corpus_id: int, number: int) -> CorpusVersion:
    version = corpora_for(request).filter(corpus=corpus_id, number=number).first()
    if version is None:
        raise Http404
    return version


def offered(request: HttpRequest) -> list[CorpusVersion]:
    """List the versions to choose from in parameters with the widget "corpus"; a parameter's value is str(version)."""
    return list(corpora_for(request).filter(status=CorpusVersion.READY, archived_at=None))


def ready_version(title: str) -> CorpusVersion | None:
    """Find the ready version with this title, archived or not."""
    if (parts := corpora.name_and_version(title)) is None:
        return None
    versions = CorpusVersion.objects.filter(status=CorpusVersion.READY, corpus__name=parts[0], number=parts[1])
    return versions.select_related("corpus").first()


def file_of(title: str) -> Path:
    """Return the path of a corpus's documents by its title, for workers.rewards.tools.Tools. Raises Unavailable if no
    ready version has it."""
    version = ready_version(title)
    return version.path if version else no_corpora(title)


def titles_in(parts: Iterable[PartSpec]) -> list[str]:
    """List the titles of the corpora that an environment's parts refer to, without duplicates."""
    titles = [
        str(part.params.get(entry["name"], entry["default"]))
        for part in parts
        if part.function in LIBRARY
        for entry in LIBRARY[part.function].schema()
        if entry["widget"] == "corpus"
    ]
    return list(dict.fromkeys(titles))


def specs_of(parts: Iterable[PartSpec]) -> tuple[CorpusSpec, ...]:
    """Build EpisodeSpec.corpora from an environment's parts. Raises DatasetError if a corpus is missing."""
    specs: list[CorpusSpec] = []
    for title in titles_in(parts):
        version = ready_version(title)
        if version is None:
            raise DatasetError(f"There is no corpus {title}." if title else "Choose a corpus for the search tool.")
        specs.append(version.spec)
    return tuple(specs)
