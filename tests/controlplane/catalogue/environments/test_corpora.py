from __future__ import annotations

import pytest

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion
from tests.controlplane.catalogue.environments.environments import an_environment

pytestmark = pytest.mark.django_db


def test_a_corpus_that_environments_search_is_not_deleted_and_names_them() -> None:
    corpus = Corpus.objects.create(name="Towns")
    used, unused = (CorpusVersion.objects.create(corpus=corpus, number=n, status=CorpusVersion.READY) for n in (1, 2))
    for name in ("finding", "asking"):
        an_environment(name, parts=[{"name": "search", "function": "search", "params": {"corpus": "Towns v1"}}])
    with pytest.raises(DatasetError, match="the environment asking, the environment finding"):
        archiving.delete_corpus_version(used)
    archiving.delete_corpus_version(unused)
    assert list(corpus.versions.all()) == [used]
