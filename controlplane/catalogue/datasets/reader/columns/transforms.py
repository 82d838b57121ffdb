"""Built-in transforms, which extract the answer that rewards compare with from a response."""

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
"""HumanEval's column that names the requested function."""
THINK_PROMPT = "Think first, inside <think>…</think>. Then give the answer alone, inside <answer>…</answer>."

_THOUSANDS = re.compile(r"-?[$€£]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class ExtractedAnswer:
    """Answer that was found in a response."""

    answer: str
    reasoning: str = ""
    """Text before the answer, which is kept in the row's metadata."""


Extract = Callable[[str, str, str], ExtractedAnswer]
"""Function of (response, its column, the mapping's marker) that returns the answer in it, or raises RowProblem if it
finds none."""


@dataclass(frozen=True)
class Transform:
    """Way to extract the answer from its column, with defaults for the mapping."""

    title: str
    help: str
    extract: Extract
    columns: Mapping[str, str] = field(default_factory=dict)
    """Default columns by mapping field."""
    required_fields: tuple[str, ...] = ()
    """Mapping fields that the transform requires in addition to the prompt."""
    makes_rows: bool = False
    """True if the columns come from the rows that a function returns; all but the prompt may be missing."""
    continues_prompt: bool = False
    """True if the answer is the prompt's text followed by the response, and each test defines a function `check`, which
    is called with the row's ENTRY_POINT."""


def whole_response(response: str, column: str, marker: str) -> ExtractedAnswer:
    return ExtractedAnswer(_strip_keeping_indentation(response))


def after_marker(response: str, column: str, marker: str) -> ExtractedAnswer:
    return ExtractedAnswer(_split(response, column, marker)[1] if marker else _strip_keeping_indentation(response))


def gsm8k(response: str, column: str, marker: str) -> ExtractedAnswer:
    """Extract the number after the last ####, without thousands separators: 1,080 becomes 1080, as models write it."""
    reasoning, after_marker_text = _split(response, column, marker or GSM8K_MARKER)
    answer = (after_marker_text.splitlines() or [""])[0].strip()
    if _THOUSANDS.fullmatch(answer):
        answer = answer.replace(",", "")
    return ExtractedAnswer(answer, reasoning)


def think(response: str, column: str, marker: str) -> ExtractedAnswer:
    """Extract the text in the last <answer>…</answer> or, without that tag, the text after the last </think>."""
    before_end, think_end, after = response.rpartition("</think>")
    before_answer, _, after_tag = response.rpartition("<answer>")
    answer, answer_end, _ = after_tag.partition("</answer>")
    if answer_end:
        reasoning = before_end if think_end else before_answer
        return ExtractedAnswer(answer.strip(), _without("<think>", reasoning))
    if not think_end:
        raise RowProblem("marker_missing", f"“{column}” contains neither <answer>…</answer> nor </think>.", column)
    return ExtractedAnswer(after.strip(), _without("<think>", before_end))


TRANSFORMS: Mapping[str, Transform] = {
    COLUMNS: Transform(
        "Columns as chosen",
        "The answer is the text in its column, or what follows the last marker in that text.",
        after_marker,
    ),
    INSTRUCTION: Transform(
        "Instruction and response",
        "The response as a whole is the answer.",
        whole_response,
        {"prompt": "instruction", "answer": "response"},
        ("answer",),
    ),
    WITH_TESTS: Transform(
        "Instruction and response with tests",
        "The response as a whole is the answer, and each row has tests for the code in completions.",
        whole_response,
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
        "The prompt is the head of a function, and the answer is the whole function. Its test is the code in the test "
        "column, followed by a call of its check with the function that “entry_point” names.",
        whole_response,
        {"prompt": "prompt", "answer": "canonical_solution", "test_cases": "test"},
        ("answer", "test_cases"),
        continues_prompt=True,
    ),
    CUSTOM: Transform(
        "Custom Python",
        "A function receives each row and returns a dict with prompt, answer and test_cases; other keys become "
        "metadata. It runs only in the sandbox.",
        whole_response,
        {name: name for name in ("prompt", "answer", "test_cases", "difficulty", "tags")},
        makes_rows=True,
    ),
}
"""Transforms by their name in mappings. Never rename one, and never change its meaning."""


def _split(response: str, column: str, marker: str) -> tuple[str, str]:
    before, found_marker, after = response.rpartition(marker)
    if not found_marker:
        raise RowProblem("marker_missing", f"“{column}” doesn't contain {marker}.", column)
    return before.strip(), after.strip()


def _strip_keeping_indentation(text: str) -> str:
    """Strip white space, but keep the indentation of the first of several lines, which may be code."""
    stripped = text.strip()
    leading_space = text[: len(text) - len(text.lstrip())]
    return leading_space.rpartition("\n")[2] + stripped if "\n" in stripped else stripped


def _without(tag: str, text: str) -> str:
    return text.strip().removeprefix(tag).strip()
