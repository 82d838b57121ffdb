from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.corpora import building, plain_text, queries
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import Corpus, CorpusVersion, DatasetVersion
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import checked, ready, worked
from tests.controlplane.people import operator, viewer
from workers.contract.run import corpora
from workers.contract.run.episodes import CorpusSpec, PartSpec

pytestmark = pytest.mark.django_db

DOCUMENTS: list[Any] = [
    {"title": "Cedawick", "body": "A town that sells smoked pears."},
    {"title": "Roslomoor", "body": "A town that sells woven sails."},
    {"title": "Cedawick", "body": "A town that sells smoked pears."},
    {"title": "Nothing", "body": "  "},
]


@pytest.fixture(autouse=True)
def _data(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def made(version: CorpusVersion) -> CorpusVersion:
    building.build(version)
    version.refresh_from_db()
    return version


def a_corpus(name: str = "Towns", documents: list[Any] | None = None, **more: Any) -> CorpusVersion:
    source = checked(jsonl(documents or DOCUMENTS))
    return made(building.create(None, name, source, **{"text": ["body"], "title": "title", **more}))


def test_rows_become_documents_without_repeated_and_empty_ones() -> None:
    version = a_corpus()
    assert (version.status, version.documents) == (CorpusVersion.READY, 2)
    assert (version.report["repeated"], version.report["empty"]) == (1, 1)
    assert version.sha256 == hashlib.sha256(version.path.read_bytes()).hexdigest()
    assert [row["title"] for row in pq.read_table(version.path).to_pylist()] == ["Cedawick", "Roslomoor"]


def test_the_same_rows_make_the_same_file() -> None:
    assert a_corpus().sha256 == a_corpus().sha256
    assert [version.number for version in CorpusVersion.objects.order_by("number")] == [1, 2]


def test_several_columns_are_joined_and_long_texts_cut() -> None:
    version = a_corpus(documents=[{"title": "T\n x", "body": "y" * 30_000, "more": ["z"]}], text=["more", "body"])
    [document] = pq.read_table(version.path).to_pylist()
    assert (document["text"][:5], len(document["text"])) == ("z\n\nyy", corpora.MAX_TEXT_LENGTH)
    assert (document["title"], version.report["cut"]) == ("T x", 1)


@pytest.mark.parametrize("text", [["answer"], ["prompt", "answer"]])
def test_a_ready_dataset_and_one_made_by_a_filter_have_columns_too(text: list[str]) -> None:
    version = ready()
    DatasetVersion.objects.filter(pk=version.pk).update(source_kind=DatasetVersion.DERIVED)
    version.refresh_from_db()
    version.source_path.unlink()
    assert made(building.create(None, "answers", version, text=text)).documents == 5


def test_a_corpus_without_any_text_says_so() -> None:
    version = a_corpus(documents=[{"title": "a", "body": ""}])
    assert version.status == CorpusVersion.INVALID
    assert version.report["file_error"]["message"] == "No row has text in these columns."
    assert not version.path.exists()


def test_a_corpus_whose_dataset_is_gone_says_so() -> None:
    source = checked(jsonl(DOCUMENTS))
    version = building.create(None, "Towns", source, text=["body"])
    source.source_path.unlink()
    assert "no longer exists" in made(version).report["file_error"]["message"]


def test_too_many_documents_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from controlplane.catalogue.datasets.reader import corpus_rows

    monkeypatch.setattr(corpora, "MAX_DOCUMENTS", 1)
    (tmp_path / "source").write_bytes(jsonl(DOCUMENTS))
    arguments = {"source": str(tmp_path / "source"), "text": ["body"], "title": "title", "name": "n", "about": ""}
    assert "more than 1 documents" in corpus_rows.run(tmp_path, arguments)["file_error"]["message"]
    assert {path.name for path in tmp_path.iterdir()} <= {"source", "progress.json"}


def test_a_version_that_was_deleted_while_it_was_made_leaves_no_file() -> None:
    version = building.create(None, "Towns", checked(jsonl(DOCUMENTS)), text=["body"])
    CorpusVersion.objects.all().delete()
    building.build(version)
    assert not version.folder.exists()


def test_a_column_that_is_missing_makes_nothing() -> None:
    with pytest.raises(DatasetError, match="no column nope"):
        building.create(None, "Towns", checked(jsonl(DOCUMENTS)), text=["nope"])
    assert not Corpus.objects.exists()


# --- for environments and runs ------------------------------------------------------------------------------------


def test_the_parts_of_an_environment_name_their_corpora() -> None:
    version = a_corpus("Towns v2 of v3")
    parts = [PartSpec("search", "search", {"corpus": "Towns v2 of v3 v1"}), PartSpec("calculate", "calculator")]
    assert queries.specs_of(parts) == (CorpusSpec("Towns v2 of v3", 1, version.sha256, 2),)
    assert queries.file_of("Towns v2 of v3 v1") == version.path


@pytest.mark.parametrize(("title", "said"), [("", "Choose a corpus"), ("Rivers v1", "no corpus Rivers v1")])
def test_a_corpus_that_is_missing_is_named(title: str, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        queries.specs_of([PartSpec("search", "search", {"corpus": title})])


def test_a_corpus_in_use_is_archived_and_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    version = a_corpus()
    monkeypatch.setattr(archiving, "CORPUS_USERS", [lambda version: ["the run one", "the environment two"]])
    page = operator().post(f"{version.get_absolute_url()}delete/", follow=True).content.decode()
    assert "used by the run one, the environment two" in page
    operator().post(f"{version.get_absolute_url()}archive/")
    assert "1 archived" in viewer().get("/datasets/corpora/").content.decode()


# --- pages --------------------------------------------------------------------------------------------------------


def posted(client: Client, source: DatasetVersion, **fields: Any) -> Any:
    typed = {"name": "Towns", "text": ["body"], "title": "title", "about": "towns", **fields}
    return client.post(f"/datasets/corpora/new/{source.dataset_id}/{source.number}/", typed)


def test_an_upload_of_documents_becomes_a_corpus_that_answers_queries() -> None:
    source, client = checked(jsonl(DOCUMENTS)), operator()
    assert "Create a corpus" in client.get(source.get_absolute_url()).content.decode()
    address = posted(client, source)["Location"]
    assert "Building" in client.get(address).content.decode()
    made(CorpusVersion.objects.get())
    page = client.get(f"{address}?q=pears").content.decode()
    assert "2 documents, ready to search" in page
    assert "1 repeated and 1 without text were left out." in page
    assert ("[1] Cedawick" in page, "[2]" in page) == (True, False)


def test_no_hit_and_an_odd_query_are_answered_in_words() -> None:
    address = a_corpus().get_absolute_url()
    assert "No document matches" in viewer().get(address, {"q": "submarine"}).content.decode()
    page = viewer().get(address, {"q": "<script>\x01 pears"}).content.decode()
    assert "<script>\x01" not in page


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": []}, "Choose at least one column"),
        ({"text": ["nope"]}, "nope is not one of the available choices"),
        ({"title": "nope"}, "nope is not one of the available choices"),
        ({"name": ""}, "This field is required"),
        ({"name": "a\u202eb"}, "Control characters"),
    ],
)
def test_a_form_with_an_error_makes_nothing(fields: dict[str, Any], said: str) -> None:
    answer = posted(operator(), checked(jsonl(DOCUMENTS)), **fields)
    assert (answer.status_code, said in answer.content.decode()) == (422, True)
    assert not Corpus.objects.exists()


def test_the_state_asks_for_a_new_page_once_it_is_made_or_gone() -> None:
    version = building.create(None, "Towns", checked(jsonl(DOCUMENTS)), text=["body"])
    state = f"{version.get_absolute_url()}state/"
    assert "Waiting" in viewer().get(state).content.decode()
    made(version)
    assert viewer().get(state).headers["HX-Refresh"] == "true"
    archiving.delete_corpus_version(version)
    assert viewer().get(state, headers={"HX-Request": "true"}).headers["HX-Refresh"] == "true"


def test_the_sample_is_a_corpus_and_questions_ready_to_train_on() -> None:
    address = operator().post("/datasets/corpora/sample/")["Location"]
    assert made(CorpusVersion.objects.get()).documents == 200
    questions = worked(DatasetVersion.objects.get())
    assert (questions.status, questions.rows) == (DatasetVersion.READY, 200)
    assert operator().post("/datasets/corpora/sample/")["Location"] == address
    assert building.create_sample(None) == CorpusVersion.objects.get()


# --- text files ---------------------------------------------------------------------------------------------------

NOTES = "Intro.\r\n\r\n# Cedawick #\nIt sells pears.\nSmoked.\n\n```\n# no heading\n\nx\n```\n \n## Empty\n"


def uploaded(content: bytes, name: str = "notes.md", **fields: Any) -> Any:
    file = SimpleUploadedFile(name, content)
    return operator().post("/datasets/corpora/text/", {"name": "Notes", "about": "towns", "file": file, **fields})


def of_upload(answer: Any) -> CorpusVersion:
    assert answer.status_code == 302, answer.content.decode()
    return made(CorpusVersion.objects.get())


def test_each_paragraph_of_a_markdown_file_is_a_document_below_its_heading() -> None:
    version = of_upload(uploaded(NOTES.encode()))
    documents = [(row["title"], row["text"]) for row in pq.read_table(version.path).to_pylist()]
    assert documents[:2] == [("", "Intro."), ("Cedawick", "It sells pears.\nSmoked.")]
    assert documents[2:] == [("Cedawick", "```\n# no heading\n\nx\n```")]
    assert (version.source, version.about) == ("notes.md", "towns")


def test_a_text_file_has_no_headings() -> None:
    version = of_upload(uploaded(b"\xef\xbb\xbf# one\n\n\n\ntwo", "a.TXT"))
    assert [tuple(row.values())[1:] for row in pq.read_table(version.path).to_pylist()] == [("", "# one"), ("", "two")]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"text", "a.pdf", "ends in .txt, .md or .markdown"),
        (b"caf\xe9", "a.txt", "not UTF-8 text: byte 3"),
        (b"a\0b", "a.txt", "contains NUL bytes"),
        (b"# only\n\n", "a.md", "no paragraphs"),
        (b"", "a.txt", "The file is empty."),
        (b"x" * (plain_text.MAX_BYTES + 1), "a.txt", "larger than 3 MiB"),
    ],
)
def test_a_file_that_is_no_text_makes_nothing_and_says_why(content: bytes, name: str, words: str) -> None:
    answer = uploaded(content, name)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not Corpus.objects.exists()
