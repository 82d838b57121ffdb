"""Search in an uploaded corpus by BM25. The same query always has the same results: equal scores are ranked by id.

The index is built once per corpus and setting, at the first session, and cached on disk (index_cache) and in the
process's Tools. Building takes 5 seconds and 0.4 GB for 100,000 documents of 100 words; a query takes a millisecond.
"""

import re
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.run import corpora
from workers.contract.run.episodes import ToolError
from workers.environments import index_cache
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Cost
from workers.rewards.tools import Tools, Unavailable

FORMAT = 1
"""Version of the tokenization of documents; a new version causes new indexes."""
MAX_QUERY_LENGTH = 1000
MAX_TERMS = 32
MAX_POSITIONS = 400
"""Maximum number of positions in one document at which a snippet may begin."""
NO_MATCH = "No document matches. Try other words."
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
"""Pattern of a word. Chinese and Japanese have no spaces, so each of their characters is a word."""
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about an and are as at be been but by did do does for from had has have how if in into is it its of on or "
        "so than that the their them then there these they this those to was were what when where which who whom "
        "whose why will with would",
    )
)
_building = threading.Lock()


@dataclass(frozen=True)
class SearchParams(Params):
    corpus: str = param("", "Documents to search.", widget="corpus")
    results: int = param(3, "Maximum number of documents in a result.", min=1, max=20)
    snippet: int = param(400, "Maximum number of characters from each document in a result.", min=80, max=4000)
    k1: float = param(1.5, "How much repetition of a word in a document matters; 0 ignores it.", min=0.0, max=5.0)
    b: float = param(0.75, "How much long documents are penalized, from 0 (not at all) to 1 (fully).", min=0.0, max=1.0)
    stop_words: bool = param(True, "Ignore English stop words, such as “the” and “who”.")


@dataclass(frozen=True)
class DocumentHit:
    id: int
    title: str
    snippet: str
    score: float


class Index:
    """A searchable corpus. Threads may share it."""

    def __init__(self, path: Path, *, k1: float, b: float, stop_words: bool) -> None:
        """Open the corpus. Raises ValueError or OSError if the file isn't a corpus."""
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        self.head = corpora.head_in(table.schema.metadata)
        self._titles, self._texts = table.column("title"), table.column("text")
        self._stop = _STOP_WORDS if stop_words else frozenset[str]()
        setting = f"{FORMAT} {k1!r} {b!r} {stop_words}"
        self._bm25 = index_cache.open_index(path, len(self), setting, lambda: self._build(k1, b))
        self._term_numbers: Mapping[str, int] = self._bm25.vocab_dict if self._bm25 is not None else {}

    def __len__(self) -> int:
        return len(self._texts)

    def words_of(self, query: str) -> list[str]:
        """Return the first MAX_TERMS distinct words of a query, without stop words."""
        return list(dict.fromkeys(self._terms(unicodedata.normalize("NFC", query[:MAX_QUERY_LENGTH]))))[:MAX_TERMS]

    def find(self, query: str, count: int, snippet: int) -> list[DocumentHit]:
        """Return up to `count` documents that contain a word of the query, best first."""
        import numpy as np

        terms = [term for term in self.words_of(query) if term in self._term_numbers]
        if not terms:
            return []
        scores = self._bm25.get_scores(terms)
        hits = np.flatnonzero(scores > 0)
        if len(hits) > count:
            threshold = np.partition(scores[hits], len(hits) - count)[len(hits) - count]
            hits = hits[scores[hits] >= threshold]
        ranked = hits[np.lexsort((hits, -scores[hits]))][:count]
        return [
            DocumentHit(
                document_id,
                self._titles[document_id].as_py(),
                snippet_of(self._texts[document_id].as_py(), terms, snippet),
                float(scores[document_id]),
            )
            for document_id in ranked.tolist()
        ]

    def _build(self, k1: float, b: float) -> Any:
        import bm25s
        from bm25s.tokenization import Tokenized

        vocabulary = _Vocabulary(self._stop)
        documents = zip(self._titles.to_pylist(), self._texts.to_pylist(), strict=True)
        ids = [vocabulary.ids(title, text) for title, text in documents]
        if not vocabulary.terms:
            return None
        bm25 = bm25s.BM25(k1=k1, b=b, method="lucene")
        bm25.index(Tokenized(ids=ids, vocab=vocabulary.terms), create_empty_token=False, show_progress=False)
        return bm25

    def _terms(self, text: str) -> list[str]:
        return [term for term in map(_term, _WORD.findall(text)) if term not in self._stop]


class _Vocabulary(dict[str, int]):
    """Mapping of words to the numbers of their terms, or -1 for stop words. New words are added on access."""

    def __init__(self, stop: frozenset[str]) -> None:
        self._stop = stop
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = _term(word)
        number = -1 if term in self._stop else self.terms.setdefault(term, len(self.terms))
        self[word] = number
        return number

    def ids(self, title: str, text: str) -> list[int]:
        numbers = map(self.__getitem__, _WORD.findall(title) + _WORD.findall(text))
        return [number for number in numbers if number >= 0]


def index_of(tools: Tools, params: SearchParams) -> Index:
    """Return the corpus's index, building it if necessary. Raises Unavailable if the corpus is missing or can't be
    read."""
    path = tools.corpus(params.corpus)
    key = ("search", str(path), params.k1, params.b, params.stop_words)
    with _building:  # sessions of one step open concurrently, and only one of them builds
        index = tools.cached(key)
        if index is None:
            try:
                index = Index(path, k1=params.k1, b=params.b, stop_words=params.stop_words)
            except (OSError, ValueError) as error:
                raise Unavailable(f"The corpus {params.corpus} can't be read: {error}") from error
            tools.cache(key, index)
    return index  # type: ignore[no-any-return]


def snippet_of(text: str, terms: Sequence[str], max_length: int) -> str:
    """Return the part of a text, of at most `max_length` characters, that has the most distinct terms; the first such
    part."""
    if len(text) <= max_length:
        return text
    wanted_terms = set(terms)
    positions = [
        (match.start(), term) for match in _WORD.finditer(text) if (term := _term(match.group())) in wanted_terms
    ]
    room = max_length - 2  # for an ellipsis on each side
    best_start, best_count = 0, 0
    for number, (start, _) in enumerate(positions[:MAX_POSITIONS]):
        nearby = positions[number : number + MAX_POSITIONS]
        found_terms = {term for position, term in nearby if position + len(term) <= start + room}
        if len(found_terms) > best_count:
            best_start, best_count = start, len(found_terms)
    begin = max(0, min(best_start - room // 4, len(text) - room)) if best_start > room * 3 // 4 else 0
    if begin:
        begin = max(begin, text.find(" ", begin, best_start) + 1)  # after a space, if there is one
    end = begin + room
    space = text.rfind(" ", begin + room // 2, end) if end < len(text) else len(text)
    end = space if space > 0 else end
    return f"{'…' if begin else ''}{text[begin:end].strip()}{'…' if end < len(text) else ''}"


def as_text(hits: Sequence[DocumentHit]) -> str:
    """Format the hits as text for the model."""
    if not hits:
        return NO_MATCH
    return "\n\n".join(
        f"[{number}] {hit.title}\n{hit.snippet}" if hit.title else f"[{number}] {hit.snippet}"
        for number, hit in enumerate(hits, 1)
    )


def _term(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()


class _SearchTool(EpisodeSession):
    def __init__(self, name: str, params: SearchParams, index: Index) -> None:
        self._name, self._params, self._index = name, params, index

    def tools(self) -> list[ToolDescription]:
        head, documents = self._index.head, len(self._index)
        about = f": {head['about'].rstrip('.')}" if head.get("about") else ""
        text = f"Search {documents:,} documents of “{head['name']}”{about}. "
        text += f"Returns the {self._params.results} best matches, with the part of the text that fits the query."
        return [ToolDescription.of_text(self._name, text, "query", "A few words to look for, such as names.")]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        query = str(arguments.get("query", ""))
        if not self._index.words_of(query):
            return Result("The query contains no words to look for. Add some.", ToolError.ARGUMENTS)
        return Result(as_text(self._index.find(query, self._params.results, self._params.snippet)))


ENTRY = Entry(
    key="search",
    title="Search a corpus",
    help="Finds the documents in an uploaded corpus that best match a query (BM25).",
    params=SearchParams,
    kind=EntryKind.TOOL,
    open=lambda name, params, tools: _SearchTool(name, params, index_of(tools, params)),
    cost=Cost.PURE,
    use="For questions whose answers are in your documents. Create the corpus on a dataset's page, from its "
    "columns. The search matches words, not meanings, so it doesn't find synonyms.",
)
