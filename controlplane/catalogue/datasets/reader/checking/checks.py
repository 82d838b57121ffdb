"""Validation of single rows under a mapping."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader.columns import fields
from controlplane.catalogue.datasets.reader.columns.conversations import messages
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, tests
from controlplane.catalogue.datasets.reader.columns.transforms import TRANSFORMS
from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT, visible
from controlplane.catalogue.datasets.reader.problems import DataProblem
from workers.rewards.entries.answer import normalised

Row = Mapping[str, Any]


class Checker:
    """Checker of rows under a resolved mapping; without a prompt column, rows need nothing."""

    def __init__(self, mapping: ColumnMapping) -> None:
        self._mapping = mapping
        self.has_prompt = bool(mapping.prompt)
        self._transform = TRANSFORMS[mapping.transform]
        self._checks: list[Callable[[Row], Any]] = []
        if not mapping.prompt:
            return
        self._checks = [self._check_prompt, self._check_answer, partial(tests, mapping=mapping)]
        if mapping.input:
            self._checks.insert(1, partial(fields.optional_text, name=mapping.input))
        if mapping.difficulty:
            self._checks.append(partial(fields.difficulty, name=mapping.difficulty))
        if mapping.tags:
            self._checks.append(partial(fields.tags, name=mapping.tags))
        if mapping.follow_up:
            self._checks.append(self._check_follow_up)

    def problems(self, row: Row, line: int, byte: int = -1) -> list[DataProblem]:
        """List all problems of a row, so that people can fix all of them before the next upload."""
        by_kind: dict[tuple[str, str], DataProblem] = {}
        for check in self._checks:
            try:
                check(row)
            except RowProblem as problem:
                row_problem = DataProblem(
                    line, problem.kind, visible(str(problem)), excerpt(row), byte=byte, field=visible(problem.field)
                )
                by_kind.setdefault((row_problem.kind, row_problem.field), row_problem)
        return list(by_kind.values())

    def key(self, row: Row) -> Hashable:
        """Return a key that is equal for rows with the same prompt. The row must have no problems."""
        mapping = self._mapping
        if mapping.messages:
            conversation = messages(row, mapping.prompt)
            prompt_turns = conversation[:-1] if conversation[-1]["role"] == "assistant" else conversation
            return tuple((turn["role"], turn["content"]) for turn in prompt_turns)
        prompt: str = row[mapping.prompt]
        if not mapping.input and not mapping.follow_up:
            return prompt
        turns = (row.get(name) for name in (mapping.input, mapping.follow_up))
        return (prompt, *(turn or None for turn in turns))

    def _check_prompt(self, row: Row) -> None:
        if self._mapping.messages:
            turns = messages(row, self._mapping.prompt)
            if turns[-1]["role"] == "assistant" and not self._mapping.answer:
                self._check_extracted(turns[-1]["content"], self._mapping.prompt)
        else:
            fields.text(row, self._mapping.prompt, "a prompt")

    def _check_answer(self, row: Row) -> None:
        name = self._mapping.answer
        if self._transform.makes_rows and row.get(name) is None:
            return
        if name and not (self._mapping.messages and name == self._mapping.prompt):
            response = fields.text_or_number(row, name)
            if self._mapping.splits_turns or not (self._mapping.follow_up and row.get(self._mapping.follow_up)):
                self._check_extracted(response, name)

    def _check_follow_up(self, row: Row) -> None:
        question = fields.optional_text(row, self._mapping.follow_up)
        name = self._mapping.follow_up_response
        if question and name:
            self._check_extracted(fields.text_or_number(row, name), name)

    def _check_extracted(self, response: str, column: str) -> None:
        extracted = self._transform.extract(response, column, self._mapping.answer_after)
        if not normalised(extracted.answer, ignore_case=True, ignore_punctuation=True):
            raise RowProblem("empty_answer", f"“{column}” has only spaces and punctuation as an answer.", column)


def excerpt(row: Row) -> str:
    """Return the beginning of a row as JSON, for a problem."""
    head = {name[:80]: value[:MAX_EXCERPT] if isinstance(value, str | list) else value for name, value in row.items()}
    text = visible(msgspec.json.encode(head).decode())
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT] + "…"
