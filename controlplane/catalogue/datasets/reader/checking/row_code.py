"""Check of the Python code in a row: answers and tests that don't parse, and tests that no reward can judge."""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.checking import code
from controlplane.catalogue.datasets.reader.checking.code import CodeProblem
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, tests
from controlplane.catalogue.datasets.reader.columns.transforms import COLUMNS, INSTRUCTION, WITH_TESTS
from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT, visible
from controlplane.catalogue.datasets.reader.problems import DataProblem
from workers.contract.run.code_tests import unpack
from workers.sandbox.requirements.test_requirements import read_bounded


def problems(
    row: Mapping[str, Any], row_fields: Mapping[str, Any] | None, mapping: ColumnMapping, line: int
) -> Iterator[DataProblem]:
    """Yield the problems of a row. `row_fields` is its result from mapping.canonical, or None if that failed."""
    test_sources = _tests(row, mapping)
    for field, text in _answers(row, row_fields, mapping):
        for error in code.problems(text, is_code_expected=bool(test_sources)):
            message = f"“{field}” has Python that doesn't parse: {error.message}, in line {error.line} of the code."
            yield _problem("code_syntax", line, field, message, text, error)
    for number, test in enumerate(test_sources, 1):
        if unpack(test) is None and (problem := _test_problem(test, number, line, mapping.test_cases)):
            yield problem


def _answers(
    row: Mapping[str, Any], row_fields: Mapping[str, Any] | None, mapping: ColumnMapping
) -> Iterator[tuple[str, str]]:
    """Yield (column, value) for values that may contain code, as they are in the file if they are used whole."""
    is_used_whole = mapping.transform in (COLUMNS, INSTRUCTION, WITH_TESTS) and not mapping.answer_after
    if mapping.messages and not mapping.answer:
        messages = row.get(mapping.prompt)
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and message.get("role") == "assistant":
                yield from _if_string(mapping.prompt, message.get("content"))
    elif is_used_whole or mapping.follow_up:
        for column in dict.fromkeys((mapping.answer, mapping.follow_up_response)):
            yield from _if_string(column, row.get(column))
    elif row_fields is not None:
        yield from _if_string(mapping.answer, row_fields["answer"])


def _if_string(column: str, value: Any) -> Iterator[tuple[str, str]]:
    if column and isinstance(value, str):
        yield column, value


def _tests(row: Mapping[str, Any], mapping: ColumnMapping) -> list[str]:
    try:
        return tests(row, mapping)
    except RowProblem:
        return []  # reported by the first pass


def _test_problem(test: str, number: int, line: int, column: str) -> DataProblem | None:
    """Return the test's syntax error, doubts about the test, or a requirement that no reward can meet because the code
    under test runs in its own process; None if there are none, or if the test is too long or too nested to be read."""
    requirements = read_bounded(test)
    if requirements is None:
        if syntax_error := code.problem(test):
            message = f"Test {number} in “{column}” doesn't parse: {syntax_error.message}."
            return _problem("test_syntax", line, column, message, test, syntax_error)
        return None
    if requirements.problem:
        kind, message = "test_needs", f"Test {number} in “{column}” can never pass. {requirements.problem}"
    elif requirements.doubts:
        kind, message = "test_doubts", f"Test {number} in “{column}”: {requirements.doubts}"
    else:
        return None
    return DataProblem(line, kind, visible(message), visible(test[:MAX_EXCERPT]), field=visible(column))


def _problem(kind: str, line: int, field: str, message: str, text: str, error: CodeProblem) -> DataProblem:
    lines = text.split("\n")
    code_line = lines[min(error.line, len(lines)) - 1]
    start = max(0, error.column - 1 - MAX_EXCERPT // 2)
    return DataProblem(
        line,
        kind,
        visible(message),
        visible(code_line[start : start + MAX_EXCERPT]),
        error.column,
        field=visible(field),
        code_line=error.line,
    )
