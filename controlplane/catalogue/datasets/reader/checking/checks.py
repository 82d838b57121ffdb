"""Validation of single rows under a mapping."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader.columns import fields
from controlplane.catalogue.datasets.reader.columns.conversations import messages
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, tests
from controlplane.catalogue.datasets.reader.columns.transforms import TRANSFORMS
from controlplane.catalogue.datasets.reader.excerpts import EXCERPT, visible
from controlplane.catalogue.datasets.reader.problems import DataProblem
from workers.rewards.entries.answer import normalised

Row = Mapping[str, Any]


class Checker:
    """Checks rows under a resolved mapping; without a prompt column nothing is required."""

    def __init__(self, mapping: ColumnMapping) -> None:
        self._mapping = mapping
        self._transform = TRANSFORMS[mapping.transform]
        self._parts: list[Callable[[Row], Any]] = []
        if mapping.prompt:
            self._parts = [self._prompt, self._second, self._answer, self._tests, self._difficulty, self._tags]
        if mapping.prompt and mapping.follow_up:
            self._parts.append(self._follow_up)

    def problems(self, row: Row, line: int, byte: int = -1) -> list[DataProblem]:
        """All problems of a row, so that people can fix them before the next upload."""
        by_kind: dict[tuple[str, str], DataProblem] = {}
        for part in self._parts:
            try:
                part(row)
            except RowProblem as problem:
                row_problem = DataProblem(
                    line, problem.kind, visible(str(problem)), excerpt(row), byte=byte, field=visible(problem.field)
                )
                by_kind.setdefault((row_problem.kind, row_problem.field), row_problem)
        return list(by_kind.values())

    def key(self, row: Row) -> Hashable:
        """A key that is equal for rows with the same prompt; for rows without problems."""
        mapping = self._mapping
        if mapping.messages:
            turns = messages(row, mapping.prompt)
            prompt_turns = turns[:-1] if turns[-1]["role"] == "assistant" else turns
            return tuple((turn["role"], turn["content"]) for turn in prompt_turns)
        prompt: str = row[mapping.prompt]
        if not mapping.input and not mapping.follow_up:
            return prompt
        more = (row.get(name) for name in (mapping.input, mapping.follow_up))
        return (prompt, *(turn or None for turn in more))

    def _prompt(self, row: Row) -> None:
        if self._mapping.messages:
            turns = messages(row, self._mapping.prompt)
            if turns[-1]["role"] == "assistant" and not self._mapping.answer:
                self._extracted(turns[-1]["content"], self._mapping.prompt)
        else:
            fields.text(row, self._mapping.prompt, "a prompt")

    def _second(self, row: Row) -> None:
        if self._mapping.input:
            fields.optional_text(row, self._mapping.input)

    def _answer(self, row: Row) -> None:
        name = self._mapping.answer
        if self._transform.makes_rows and row.get(name) is None:
            return
        if name and not (self._mapping.messages and name == self._mapping.prompt):
            response = fields.text_or_number(row, name)
            if self._mapping.splits_turns or not (self._mapping.follow_up and row.get(self._mapping.follow_up)):
                self._extracted(response, name)

    def _tests(self, row: Row) -> None:
        tests(row, self._mapping)

    def _difficulty(self, row: Row) -> None:
        if self._mapping.difficulty:
            fields.difficulty(row, self._mapping.difficulty)

    def _tags(self, row: Row) -> None:
        if self._mapping.tags:
            fields.tags(row, self._mapping.tags)

    def _follow_up(self, row: Row) -> None:
        question = fields.optional_text(row, self._mapping.follow_up)
        name = self._mapping.follow_up_response
        if question and name:
            self._extracted(fields.text_or_number(row, name), name)

    def _extracted(self, response: str, column: str) -> None:
        extracted = self._transform.extract(response, column, self._mapping.answer_after)
        if not normalised(extracted.answer, ignore_case=True, ignore_punctuation=True):
            raise RowProblem("empty_answer", f"“{column}” has no answer left without spaces and punctuation.", column)


def excerpt(row: Row) -> str:
    """The beginning of a row as JSON."""
    short = {name[:80]: value[:EXCERPT] if isinstance(value, str | list) else value for name, value in row.items()}
    text = visible(msgspec.json.encode(short).decode())
    return text if len(text) <= EXCERPT else text[:EXCERPT] + "…"
