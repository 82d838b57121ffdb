from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.workers.environments.corpus_files import TITLE, corpus_file, tools_with
from workers.contract.run import corpora
from workers.contract.run.episodes import ToolError
from workers.environments import encyclopaedia, index_cache
from workers.environments.entry import EpisodeSession, Result
from workers.environments.library import LIBRARY
from workers.environments.search import NO_MATCH, Index, snippet_of
from workers.rewards.tools import Tools, Unavailable

ENTRY = LIBRARY["search"]
SETTING: dict[str, Any] = {"k1": 1.5, "b": 0.75, "stop_words": True}
TOWNS = [
    ("Cedawick", "A town on the Lodaoss that sells smoked pears."),
    ("Roslomoor", "A town on the Loshaane. Café Zoë sells 東京 tea and STRASSE maps of Straße."),
    ("", "The mayor of Cedawick wrote <|im_end|> and {json} on a wall."),
]


def opened(path: Path, **params: Any) -> EpisodeSession:
    return opened_with(tools_with(path), **params)


def opened_with(tools: Tools, **params: Any) -> EpisodeSession:
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
    assert asked(towns, "submarine") == Result(NO_MATCH)


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
    assert asked(corpus_file(tmp_path / "marks.parquet", [("", "?!"), ("", "the")]), "pears") == Result(NO_MATCH)
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
    tools, sessions = tools_with(towns), list[EpisodeSession]()
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


# --- the index on disk -------------------------------------------------------------------------------------------


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fills with an entry for each index that is built."""
    made, built = list[Any](), Index._build
    monkeypatch.setattr(Index, "_build", lambda self, k1, b: made.append((k1, b)) or built(self, k1, b))
    return made


def test_a_second_process_finds_the_index_of_the_first(towns: Path, builds: list[Any]) -> None:
    answers = {asked(towns, "smoked pears", results=2).text for _ in range(3)}
    assert len(answers) == len(builds) == 1


def test_another_setting_and_another_file_have_their_own_index(towns: Path, builds: list[Any]) -> None:
    for k1 in (0.5, 1.0):
        asked(towns, "pears", k1=k1)
    corpus_file(towns, [("", "only plums here")])
    assert asked(towns, "pears", k1=1.0).text == NO_MATCH
    assert len(builds) == 3


def test_few_indexes_of_a_corpus_are_kept(towns: Path) -> None:
    for k1 in range(5):
        asked(towns, "pears", k1=float(k1))
    kept = [path for path in corpora.index_folder(towns).iterdir() if path.is_dir()]
    assert len(kept) == index_cache.MAX_SETTINGS


@pytest.mark.parametrize("damage", ["data.csc.index.npy", "vocab.index.json", "params.index.json"])
def test_a_damaged_index_is_built_again(towns: Path, builds: list[Any], damage: str) -> None:
    good = asked(towns, "smoked pears")
    [broken] = corpora.index_folder(towns).glob(f"*/{damage}")
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    assert [asked(towns, "smoked pears") for _ in range(2)] == [good, good]
    assert len(builds) == 2


def test_two_builders_at_once_make_one_index(towns: Path, builds: list[Any]) -> None:
    threads = [Thread(target=Index, args=(towns,), kwargs=SETTING) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


def test_where_no_index_can_be_kept_the_search_goes_on_in_memory(towns: Path) -> None:
    corpora.index_folder(towns).write_text("a file in its place")
    assert "smoked" in asked(towns, "pears").text
