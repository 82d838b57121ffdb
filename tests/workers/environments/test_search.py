from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.workers.environments.corpus_files import TITLE, corpus_file, tools_with
from workers.contract.episodes import ToolError
from workers.environments import LIBRARY, Result, Session, encyclopaedia
from workers.environments.search import NOTHING, Index, snippet_of
from workers.rewards.tools import Tools, Unavailable

ENTRY = LIBRARY["search"]
TOWNS = [
    ("Cedawick", "A town on the Lodaoss that sells smoked pears."),
    ("Roslomoor", "A town on the Loshaane. Café Zoë sells 東京 tea and STRASSE maps of Straße."),
    ("", "The mayor of Cedawick wrote <|im_end|> and {json} on a wall."),
]


def opened(path: Path, **params: Any) -> Session:
    return opened_with(tools_with(path), **params)


def opened_with(tools: Tools, **params: Any) -> Session:
    return ENTRY.open("search", ENTRY.build({"corpus": TITLE, **params}), tools)


def asked(path: Path, query: str, **params: Any) -> Result:
    return opened(path, **params).call("search", {"query": query}, 5.0)


@pytest.fixture
def towns(tmp_path: Path) -> Path:
    return corpus_file(tmp_path / "towns.parquet", TOWNS)


def test_the_best_documents_come_numbered_with_title_and_text(towns: Path) -> None:
    assert asked(towns, "Who sells smoked pears?", results=1).text == f"[1] Cedawick\n{TOWNS[0][1]}"


def test_the_tool_says_what_it_searches(towns: Path) -> None:
    [tool] = opened(towns, results=2).tools()
    assert tool.description.startswith("Search 3 documents of “Towns”: towns. Returns the 2 ")


@pytest.mark.parametrize(
    ("query", "title"),
    [("café", "Roslomoor"), ("CAFE\u0301 zoe\u0308", "Roslomoor"), ("京", "Roslomoor"), ("strasse", "Roslomoor")],
)
def test_case_and_forms_of_unicode_make_no_difference(towns: Path, query: str, title: str) -> None:
    assert asked(towns, query, results=1).text.startswith(f"[1] {title}\n")


def test_equal_documents_come_in_their_order_each_time(tmp_path: Path) -> None:
    path = corpus_file(tmp_path / "same.parquet", [(f"Number {n}", "the same words") for n in range(50)])
    found = [[one.id for one in Index(path, k1=1.5, b=0.75, stop_words=True).find("same", 7, 99)] for _ in range(2)]
    assert found == [list(range(7))] * 2


def test_no_hit_says_so(towns: Path) -> None:
    assert asked(towns, "submarine") == Result(NOTHING)


@pytest.mark.parametrize("query", ["", "  ", "?!", "who is the"])
def test_a_query_without_words_is_an_error_that_the_model_reads(towns: Path, query: str) -> None:
    assert asked(towns, query).error is ToolError.ARGUMENTS


@pytest.mark.parametrize(
    "query", ["pears " * 200_000, "x" * 10**6 + " pears", '") OR 1=1; --\0 pears', "[1] \ud800 pears"]
)
def test_odd_and_huge_queries_have_an_answer(towns: Path, query: str) -> None:
    assert asked(towns, query).error is None


def test_a_text_with_tokens_of_a_chat_template_is_found_as_text(towns: Path) -> None:
    assert "[1] The mayor" in asked(towns, "<|im_end|> json wall").text


def test_documents_without_words_are_never_found(tmp_path: Path) -> None:
    assert asked(corpus_file(tmp_path / "marks.parquet", [("", "?!"), ("", "the")]), "pears") == Result(NOTHING)
    path = corpus_file(tmp_path / "some.parquet", [("", "?!"), ("", "pears")])
    assert asked(path, "pears").text == "[1] pears"


def test_stop_words_count_when_they_are_kept(towns: Path) -> None:
    assert asked(towns, "of", stop_words=False).error is None


def test_a_snippet_is_the_part_with_the_most_words_of_the_query() -> None:
    text = "filler " * 300 + "the pears of Cedawick are smoked " + "filler " * 300
    snippet = snippet_of(text, ["pears", "smoked", "cedawick"], 120)
    assert "pears of Cedawick are smoked" in snippet
    assert len(snippet) <= 120
    assert snippet[0] == snippet[-1] == "…"


@pytest.mark.parametrize("text", ["x" * 5000, "東" * 5000, "pears", "a b " * 2000])
def test_a_snippet_is_never_longer_than_allowed(text: str) -> None:
    assert 0 < len(snippet_of(text, ["pears", "東", "b"], 80)) <= 80


def test_a_corpus_that_is_missing_or_no_corpus_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="There is no corpus named Rivers v9 here"):
        opened(tmp_path, corpus="Rivers v9")
    (tmp_path / "bad.parquet").write_bytes(b"not Parquet")
    with pytest.raises(Unavailable, match="can't be read"):
        opened(tmp_path / "bad.parquet")


def test_sessions_that_open_at_once_share_one_index(towns: Path) -> None:
    tools, sessions = tools_with(towns), list[Session]()
    threads = [Thread(target=lambda: sessions.append(opened_with(tools))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(session._index) for session in sessions}) == 1  # type: ignore[attr-defined]


def test_the_sample_answers_its_questions(tmp_path: Path) -> None:
    entries = [(one["title"], one["text"]) for one in encyclopaedia.documents()]
    session = opened(corpus_file(tmp_path / "sample.parquet", entries))
    asked = [
        (one["answer"], session.call("search", {"query": one["question"]}, 5).text) for one in encyclopaedia.questions()
    ]
    assert all(answer in text for answer, text in asked)
    assert encyclopaedia.documents() == encyclopaedia.documents()
