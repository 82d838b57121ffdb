"""The sample: a made-up encyclopaedia as a corpus, and a dataset of questions whose answers stand in it."""

from __future__ import annotations

from io import BytesIO

from controlplane.catalogue.datasets import importing
from controlplane.catalogue.datasets.corpora.making import make_of_lines
from controlplane.catalogue.datasets.models import CorpusVersion, Dataset
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.platform.accounts.models import User
from workers.environments import encyclopaedia

SOURCE = "the sample of this product"


def load(user: User | None) -> CorpusVersion:
    """The corpus and, unless there is one, the dataset; what is there already stays as it is. Raises DatasetError."""
    if not Dataset.objects.filter(name=encyclopaedia.QUESTIONS).exists():
        questions = BytesIO(encyclopaedia.lines(encyclopaedia.questions()))
        mapping = ColumnMapping(prompt="question", answer="answer")
        importing.create_from_upload(
            user, encyclopaedia.QUESTIONS, questions, "questions.jsonl", new=True, mapping=mapping
        )
    usable = CorpusVersion.objects.filter(corpus__name=encyclopaedia.NAME, archived_at=None)
    if (there := usable.exclude(status=CorpusVersion.INVALID).first()) is not None:
        return there
    documents = encyclopaedia.lines(encyclopaedia.documents())
    return make_of_lines(user, encyclopaedia.NAME, documents, source=SOURCE, about=encyclopaedia.ABOUT)
