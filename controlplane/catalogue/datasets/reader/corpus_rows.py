"""The verbs `corpus`, which turns columns of a file into documents, and `search`, which tries a query on them."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.excerpts import short
from controlplane.catalogue.datasets.reader.parsing import formats
from controlplane.catalogue.datasets.reader.parsing.records import RowSource
from controlplane.catalogue.datasets.reader.problems import FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from workers.contract.run import corpora
from workers.environments.library import LIBRARY
from workers.rewards.tools import Tools, Unavailable

SCHEMA = pa.schema([("id", pa.int64()), ("title", pa.string()), ("text", pa.string())])
GROUP_DOCUMENTS = 2_000
PREVIEW_DOCUMENTS = 8
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Write the documents of a source: {"source": path, "text": [columns], "title": column or "", "name", "about"} ->
    {"documents", "bytes", "sha256", "characters", "repeated", "empty", "cut", "unreadable", "preview"}, or
    {"file_error"}.

    DOCUMENTS exists afterwards only if there is no error.
    """
    source = Path(arguments["source"])
    documents = _Documents(arguments["text"], arguments["title"])
    target = folder / files.DOCUMENTS
    metadata = corpora.schema_metadata(name=arguments["name"], about=arguments["about"])
    try:
        with files.DraftFile(target) as draft:
            with pq.ParquetWriter(draft.file, SCHEMA.with_metadata(metadata), compression="zstd") as parquet:
                _read(source, documents, parquet, ProgressFile(folder, "documents", source.stat().st_size))
            if not documents.count:
                advice = "Choose other columns." if documents.empty else ""
                raise FileProblem("empty_file", "No row has text in these columns.", advice)
            draft.finish()
    except FileProblem as problem:
        return {"file_error": problem.as_dict()}
    return {**documents.as_dict(), "bytes": target.stat().st_size, "sha256": files.sha256_of(target)}


def search(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Search as the tool does: {"query", and parameters of the tool} -> {"text": what the model reads, "failed"}."""
    entry, path = LIBRARY["search"], folder / files.DOCUMENTS
    params = entry.build({name: value for name, value in arguments.items() if name != "query"})
    tools = Tools(open_sandbox=_no_sandbox, corpus=lambda title: path)
    try:
        result = entry.open("search", params, tools).call("search", {"query": arguments["query"]}, 0.0)
    except Unavailable as problem:
        return {"text": str(problem), "failed": True}
    return {"text": result.text, "failed": result.error is not None}


class _Documents:
    """Converter of rows into documents, which skips repeated documents and those without text."""

    def __init__(self, text_columns: list[str], title_column: str) -> None:
        self._columns, self._title = text_columns, title_column
        self._digests: set[bytes] = set()
        self._preview: list[dict[str, Any]] = []
        self.count = self.characters = self.repeated = self.empty = self.cut = self.unreadable = 0

    def add(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        text = "\n\n".join(filter(None, (_text(row.get(column)) for column in self._columns)))
        title = " ".join(_text(row.get(self._title)).split()) if self._title else ""
        if not text:
            self.empty += 1
            return None
        self.cut += len(text) > corpora.MAX_TEXT_LENGTH
        title, text = title[: corpora.MAX_TITLE_LENGTH], text[: corpora.MAX_TEXT_LENGTH]
        digest = hashlib.blake2b(f"{title}\0{text}".encode(), digest_size=16).digest()
        if digest in self._digests:
            self.repeated += 1
            return None
        self._digests.add(digest)
        document = {"id": self.count, "title": title, "text": text}
        if self.count < PREVIEW_DOCUMENTS:
            self._preview.append(short(document))
        self.count += 1
        self.characters += len(text)
        if self.count > corpora.MAX_DOCUMENTS:
            raise FileProblem("too_many", f"There are more than {corpora.MAX_DOCUMENTS:,} documents.", "Use fewer.")
        if self.characters > corpora.MAX_CHARACTERS:
            limit = f"{corpora.MAX_CHARACTERS // 10**6:,} million"
            raise FileProblem("too_many", f"The documents have more than {limit} characters.", "Use fewer rows.")
        return document

    def as_dict(self) -> dict[str, Any]:
        names = ("characters", "repeated", "empty", "cut", "unreadable")
        return {"documents": self.count, "preview": self._preview, **{name: getattr(self, name) for name in names}}


def _read(source: Path, documents: _Documents, parquet: pq.ParquetWriter, progress: ProgressFile) -> None:
    group: list[dict[str, Any]] = []
    for record in RowSource(source, formats.detect(source)).read(progress):
        if record.row is None:
            documents.unreadable += 1
        elif document := documents.add(record.row):
            group.append(document)
        if len(group) >= GROUP_DOCUMENTS:
            parquet.write_table(pa.Table.from_pylist(group, schema=SCHEMA))
            group = []
    if group:
        parquet.write_table(pa.Table.from_pylist(group, schema=SCHEMA))


def _text(value: Any) -> str:
    """Convert a cell to text: messages by their contents, lists by their items, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        value = value["content"] if isinstance(value.get("content"), str) else json.dumps(value, ensure_ascii=False)
    text = unicodedata.normalize("NFC", value if isinstance(value, str) else json.dumps(value))
    return _CONTROL.sub(" ", text).strip()


def _no_sandbox(preload: tuple[str, ...]) -> Any:
    raise Unavailable("Searching needs no sandbox.")
