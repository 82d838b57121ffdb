"""The built-in transforms, which extract from a response the answer that rewards compare with."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controlplane.catalogue.datasets.reader.columns.fields import RowProblem

COLUMNS, INSTRUCTION, WITH_TESTS = "columns", "instruction_response", "instruction_response_tests"
GSM8K, THINK, HUMANEVAL = "gsm8k", "think", "humaneval"
CUSTOM = "custom"
"""An admin's own Python function (row_function)."""
GSM8K_MARKER = "####"
ENTRY_POINT = "entry_point"
"""HumanEval's column with the name of the requested function."""
THINK_PROMPT = "Think first, inside <think>…</think>. Then give the answer alone, inside <answer>…</answer>."

_THOUSANDS = re.compile(r"-?[$€£]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class Extracted:
    """The answer in a response."""

    answer: str
    reasoning: str = ""
    """The text before it, kept in the row's metadata."""


Extract = Callable[[str, str, str], Extracted]
"""(response, its column, the mapping's marker) -> the answer in it. Raises RowProblem."""


@dataclass(frozen=True)
class Transform:
    """A way to get the answer out of its column, with defaults for the mapping."""

    title: str
    help: str
    extract: Extract
    columns: Mapping[str, str] = field(default_factory=dict)
    """Mapping field -> its default column."""
    needs: tuple[str, ...] = ()
    """Mapping fields that this transform requires in addition to the prompt."""
    makes_rows: bool = False
    """The columns come from the rows that a function returns; all but the prompt may be missing."""
    continues_prompt: bool = False
    """The answer is the prompt's text and its continuation. Each test is a text with a function `check`, which is
    called with the row's ENTRY_POINT."""


def whole(response: str, column: str, marker: str) -> Extracted:
    return Extracted(_trimmed(response))


def after_marker(response: str, column: str, marker: str) -> Extracted:
    return Extracted(_split(response, column, marker)[1] if marker else _trimmed(response))


def gsm8k(response: str, column: str, marker: str) -> Extracted:
    """Extract the number after the last ####; 1,080 becomes 1080, as a model writes it."""
    reasoning, rest = _split(response, column, marker or GSM8K_MARKER)
    answer = (rest.splitlines() or [""])[0].strip()
    if _THOUSANDS.fullmatch(answer):
        answer = answer.replace(",", "")
    return Extracted(answer, reasoning)


def think(response: str, column: str, marker: str) -> Extracted:
    """Extract the last answer of <think>…</think><answer>…</answer>; without that tag, the text after the reasoning."""
    before, closed, after = response.rpartition("</think>")
    opened, _, inside = response.rpartition("<answer>")
    answer, ended, _ = inside.partition("</answer>")
    if ended:
        thought = before if closed else opened
        return Extracted(answer.strip(), _without("<think>", thought))
    if not closed:
        raise RowProblem("marker_missing", f"“{column}” has neither <answer>…</answer> nor </think> in it.", column)
    return Extracted(after.strip(), _without("<think>", before))


TRANSFORMS: Mapping[str, Transform] = {
    COLUMNS: Transform(
        "Columns as chosen",
        "The answer is its column's text, or what follows the last marker in it.",
        after_marker,
    ),
    INSTRUCTION: Transform(
        "Instruction and response",
        "The response as a whole is the answer.",
        whole,
        {"prompt": "instruction", "answer": "response"},
        ("answer",),
    ),
    WITH_TESTS: Transform(
        "Instruction and response with tests",
        "The response as a whole is the answer, and each row has tests for a completion's code.",
        whole,
        {"prompt": "instruction", "answer": "response", "test_cases": "test_cases"},
        ("answer", "test_cases"),
    ),
    GSM8K: Transform(
        "GSM8K",
        "The answer is the number after the last ####, without thousands separators; the solution before it is kept.",
        gsm8k,
        {"prompt": "question", "answer": "answer"},
        ("answer",),
    ),
    THINK: Transform(
        "Reasoning in think tags",
        "The answer is the text in <answer>…</answer>; the reasoning in <think>…</think> is kept.",
        think,
        {"prompt": "prompt", "answer": "response"},
        ("answer",),
    ),
    HUMANEVAL: Transform(
        "HumanEval",
        "The prompt is the head of a function and the answer the whole function. Its test is the text in the column of "
        "tests, then a call of its check with the function that “entry_point” names.",
        whole,
        {"prompt": "prompt", "answer": "canonical_solution", "test_cases": "test"},
        ("answer", "test_cases"),
        continues_prompt=True,
    ),
    CUSTOM: Transform(
        "Custom Python",
        "A function gets each row and returns its prompt, answer and tests in a dict with these names; other names "
        "become metadata. It runs only in the sandbox.",
        whole,
        {name: name for name in ("prompt", "answer", "test_cases", "difficulty", "tags")},
        makes_rows=True,
    ),
}
"""Name in mappings → transform. Never rename one, and never change its meaning."""


def _split(response: str, column: str, marker: str) -> tuple[str, str]:
    before, found_marker, after = response.rpartition(marker)
    if not found_marker:
        raise RowProblem("marker_missing", f"“{column}” has no {marker} in it.", column)
    return before.strip(), after.strip()


def _trimmed(text: str) -> str:
    """Strip white space; several lines keep the indentation of the first one, because they may be code."""
    trimmed = text.strip()
    before = text[: len(text) - len(text.lstrip())]
    return before.rpartition("\n")[2] + trimmed if "\n" in trimmed else trimmed


def _without(tag: str, text: str) -> str:
    return text.strip().removeprefix(tag).strip()
