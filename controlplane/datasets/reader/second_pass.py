"""The slow half of the check: duplicate keys, broken code, tests that ask too much, near-duplicates, long prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controlplane.datasets.reader import records, repeated_keys, row_code
from controlplane.datasets.reader.chat import Renderer
from controlplane.datasets.reader.chat_templates import TemplateProblem
from controlplane.datasets.reader.excerpts import EXCERPT, excerpt, visible
from controlplane.datasets.reader.fields import RowProblem
from controlplane.datasets.reader.formats import Format
from controlplane.datasets.reader.mapping import ColumnMapping, canonical, prompt_text, resolved
from controlplane.datasets.reader.near import Near, NearDuplicates
from controlplane.datasets.reader.problems import Problem
from controlplane.datasets.reader.progress_file import ProgressFile
from controlplane.datasets.reader.records import Record
from controlplane.datasets.reader.report import Collector

AT_ONCE = 256
"""Prompts whose tokens are counted together."""
AT_ONCE_CHARACTERS = 2**20


def run(
    path: Path,
    format: Format,  # noqa: A002 -- what it is
    mapping: ColumnMapping,
    collector: Collector,
    tokenizer: Path | None,
    token_limit: int | None,
    progress: ProgressFile,
) -> int:
    """Look at every readable row of `path` once more; how many prompts nearly repeat an earlier one.

    Temporary files are unnamed ones in its folder. Raises FileProblem as records.read does.
    """
    mapping = resolved(mapping)
    renderer = _renderer(tokenizer, collector) if token_limit else None
    at = rows = near = 0

    def told(position: int) -> None:
        nonlocal at
        at = position

    with NearDuplicates(path.parent) as prompts:
        one = _SecondPass(mapping, collector, prompts, _Tokens(renderer, token_limit or 0, mapping.chat, collector))
        for record in records.read(path, format, told):
            rows = record.number + 1
            if record.row is not None:
                one.look(record, record.row)
            progress.at(at, rows)
            if collector.gave_up:
                break
        one.tokens.count()
        progress.at(at, rows, now=True)
        for found in prompts.found():
            near += 1
            collector.add(near_problem(found))
    return near


class _SecondPass:
    def __init__(self, mapping: ColumnMapping, collector: Collector, prompts: NearDuplicates, tokens: _Tokens) -> None:
        self._mapping = mapping
        self._add = collector.add
        self._prompts = prompts
        self.tokens = tokens

    def look(self, record: Record, row: dict[str, Any]) -> None:
        raw, line = record.raw, record.line
        if raw is not None and repeated_keys.may_have_any(raw, row):
            for name, column in repeated_keys.found(raw):
                message = f"“{visible(name[:80])}” stands twice in this row, or in an object in it."
                self._add(Problem(line, "duplicate_keys", message, excerpt(raw, column), column, field=visible(name)))
        try:
            made = canonical(row, self._mapping, record.number)
        except RowProblem:
            made = None  # the first pass has told why
        for problem in row_code.problems(row, made, self._mapping, line):
            self._add(problem)
        if made is not None:
            self._prompts.add(prompt_text(made["prompt"]), line)
            self.tokens.add(made["prompt"], line)


class _Tokens:
    """Prompts over the limit, counted some at a time. `renderer` None: nothing is counted."""

    def __init__(self, renderer: Renderer | None, limit: int, chat: bool, collector: Collector) -> None:
        self._renderer, self._limit, self._chat = renderer, limit, chat
        self._add = collector.add
        self._prompts: list[list[dict[str, str]]] = []
        self._lines: list[int] = []
        self._characters = 0

    def add(self, prompt: list[dict[str, str]], line: int) -> None:
        if self._renderer is None:
            return
        self._prompts.append(prompt)
        self._lines.append(line)
        self._characters += sum(len(message["content"]) for message in prompt)
        if len(self._lines) >= AT_ONCE or self._characters >= AT_ONCE_CHARACTERS:
            self.count()

    def count(self) -> None:
        if self._renderer is None:
            return
        counts = self._renderer.prompt_counts(self._prompts, chat=self._chat, over=self._limit)
        for prompt, line, tokens in zip(self._prompts, self._lines, counts, strict=True):
            if tokens is not None and tokens > self._limit:
                message = f"The prompt has {tokens:,} tokens; the limit is {self._limit:,}."
                shown = excerpt(prompt[-1]["content"][: 2 * EXCERPT].encode("utf-8", "replace"))
                self._add(Problem(line, "too_many_tokens", message, shown))
        self._prompts.clear()
        self._lines.clear()
        self._characters = 0


def _renderer(folder: Path | None, collector: Collector) -> Renderer | None:
    """None, and a word to the collector, where nothing can be counted with it."""
    if folder is None:
        return None
    try:
        made = Renderer(folder)
    except TemplateProblem as problem:
        collector.add(Problem(0, "not_counted", str(problem)))
        return None
    if made.counts_tokens:
        return made
    why = "The chosen model has no tokenizer.json (sentencepiece's own files are not read)."
    collector.add(Problem(0, "not_counted", why))
    return None


def near_problem(found: Near) -> Problem:
    if found.numbers_only:
        message = f"The same as line {found.like:,} but for its numbers."
    elif found.same_words:
        message = f"The same words as in line {found.like:,}: case, spaces or punctuation differ."
    else:
        message = f"{found.similarity:.0%} of it, by pairs of words, is in line {found.like:,} too."
    return Problem(found.line, "near_duplicate", message, visible(found.excerpt))
