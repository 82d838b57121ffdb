"""Validation of single rows under a mapping."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader.columns import choices, fields, templating
from controlplane.catalogue.datasets.reader.columns.conversations import check_images, messages
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, tests
from controlplane.catalogue.datasets.reader.columns.paths import value_of
from controlplane.catalogue.datasets.reader.columns.transforms import TRANSFORMS
from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT, visible
from controlplane.catalogue.datasets.reader.problems import DataProblem
from workers.rewards.entries.answer import normalised

Row = Mapping[str, Any]


class Checker:
    """Checker of rows under a resolved mapping; without a prompt column, every row passes."""

    def __init__(self, mapping: ColumnMapping) -> None:
        self._mapping = mapping
        self.has_prompt = mapping.has_prompt
        self._transform = TRANSFORMS[mapping.transform]
        self._checks: list[Callable[[Row], Any]] = []
        if not self.has_prompt:
            return
        self._checks = [check_images, self._check_prompt, self._check_answer, partial(tests, mapping=mapping)]
        optional = (name for name in (mapping.input, mapping.system) if name)
        self._checks += [partial(fields.optional_text, name=name) for name in optional]
        if mapping.choices:
            self._checks.append(partial(choices.choices_of, name=mapping.choices))
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
        if not mapping.prompt:
            return templating.fill(mapping.template, "", row)
        prompt: str = value_of(row, mapping.prompt)
        shown = [name for name in templating.placeholder_names(mapping.template) if name != templating.PROMPT]
        if not (mapping.input or mapping.follow_up or mapping.choices or shown):
            return prompt
        turns = (value_of(row, name) for name in (mapping.input, mapping.follow_up, mapping.choices, *shown))
        return (prompt, *(str(turn) if turn else None for turn in turns))

    def answer_key(self, row: Row) -> Hashable:
        """Return a key that is equal for rows with the same answer. The row must have no problems."""
        mapping = self._mapping
        if mapping.answer:
            value = value_of(row, mapping.answer)
            return value if isinstance(value, str) else str(value)
        return messages(row, mapping.prompt)[-1]["content"] if mapping.messages else ""

    def _check_prompt(self, row: Row) -> None:
        if self._mapping.messages:
            turns = messages(row, self._mapping.prompt)
            if turns[-1]["role"] == "assistant" and not self._mapping.answer:
                self._check_extracted([turns[-1]["content"]], self._mapping.prompt)
        elif self._mapping.prompt:
            fields.text(row, self._mapping.prompt, "a prompt")

    def _check_answer(self, row: Row) -> None:
        name = self._mapping.answer
        if self._transform.makes_rows and row.get(name) is None:
            return
        if name and (self._mapping.choices or self._mapping.numbering):
            choices.right_letters(row, name, self._mapping.choices, self._mapping.numbering)
        elif name and not (self._mapping.messages and name == self._mapping.prompt):
            responses = fields.answers(row, name)
            if self._mapping.splits_turns or not (self._mapping.follow_up and row.get(self._mapping.follow_up)):
                self._check_extracted(responses, name)

    def _check_follow_up(self, row: Row) -> None:
        question = fields.optional_text(row, self._mapping.follow_up)
        name = self._mapping.follow_up_response
        if question and name:
            self._check_extracted(fields.answers(row, name), name)

    def _check_extracted(self, responses: list[str], column: str) -> None:
        extracted = [self._transform.extract(text, column, self._mapping.answer_after).answer for text in responses]
        if not any(normalised(answer, ignore_case=True, ignore_punctuation=True) for answer in extracted):
            raise RowProblem("empty_answer", f"“{column}” has only spaces and punctuation as an answer.", column)


def excerpt(row: Row) -> str:
    """Return the beginning of a row as JSON, for a problem."""
    head = {name[:80]: value[:MAX_EXCERPT] if isinstance(value, str | list) else value for name, value in row.items()}
    text = visible(msgspec.json.encode(head).decode())
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT] + "…"
