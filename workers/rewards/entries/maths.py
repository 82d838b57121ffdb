"""A correctness reward for mathematics: it compares the value of the completion's expression with the row's answer.

math-verify parses LaTeX with a grammar and compares with SymPy, and both can run forever on what a model writes
(9^9^9^9). So math-verify runs only in the sandbox, in an interpreter that has already imported it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.rewards.extract import answer_at, right_answers
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Cost, Example, Failure, Reward, Scores
from workers.rewards.tools import Tools

PRELOAD = "workers.sandbox.math_verify_preload"
MAX_ANSWER_CHARS = 4_000
"""Maximum number of characters of an answer, or of a text searched for one; only the end of longer texts is used."""
_DELIMITERS = ("$", "\\boxed", "\\(", "\\[")
_WORD = re.compile("[A-Za-z]{2}")

# math-verify's own timeouts, which are alarms, are off: the sandbox has a deadline for the whole job.
PROGRAM = """
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

KINDS = [LatexExtractionConfig(), ExprExtractionConfig()]

def read(texts):
    for text in texts:
        found = parse(text, extraction_config=KINDS, parsing_timeout=None)
        if found:
            return found
    return []

def compare(gold, answer, digits, strict):
    right = read(gold)
    if not right:
        return None
    found = read(answer)
    return bool(found) and bool(verify(right, found, float_rounding=digits, strict=strict, timeout_seconds=None))
"""


@dataclass(frozen=True)
class MathEquivalentParams(Params):
    source: str = param(
        "anywhere",
        "Where to find the completion's answer. “Anywhere” tries the answer tag, then the last box, then the marker, "
        "then the last formula in the text.",
        choices=("anywhere", "answer tag", "after marker", "boxed", "whole text"),
    )
    tag: str = param("answer", "Name of the answer tag.")
    marker: str = param("####", "The text before the answer, in the completion and in the dataset's answer.")
    digits: int = param(6, "Number of decimal places to which numbers must agree.", min=0, max=15)
    strict: bool = param(True, "Require the same variable names, and distinguish sets from intervals.")
    seconds: float = param(
        3.0, "Time limit for one completion, in seconds. If it is exceeded, there is no score.", min=0.1, max=30.0
    )


def math_equivalent(
    completions: Sequence[Completion], rows: Sequence[Mapping[str, Any]], params: MathEquivalentParams, tools: Tools
) -> Scores:
    """Return 1 if math-verify finds the expressions equal (0.5 and \\frac{1}{2}, (x+1)^2 and x^2+2x+1, {1, 2} and {2,
    1}), or 0 if they differ or the completion has none. Return None if the row's answer isn't an expression; a
    completion that takes longer than `seconds` is a failure."""
    from workers.sandbox.outcomes import Job, Kind, Limits  # the sandbox's interface; it starts with the first job

    pairs = zip(completions, rows, strict=True)
    questions_by_row = [_questions(completion.text, row, params) for completion, row in pairs]
    distinct = list(dict.fromkeys(question for questions in questions_by_row for question in questions))
    if not distinct:
        return Scores([None] * len(questions_by_row))
    options = (params.digits, params.strict)
    jobs = [Job(PROGRAM, "compare", (list(gold), list(answer), *options)) for gold, answer in distinct]
    outcomes = tools.sandbox(PRELOAD).run(jobs, Limits(seconds=params.seconds, disk_mb=0, memory_mb=512))
    outcome_of = dict(zip(distinct, outcomes, strict=True))
    values: list[float | None] = []
    failures = []
    for index, questions in enumerate(questions_by_row):
        outcomes_here = [outcome_of[question] for question in questions]
        equal = [bool(o.value) for o in outcomes_here if o.kind is Kind.OK and o.value is not None]
        failed = next((outcome for outcome in outcomes_here if outcome.kind is not Kind.OK), None)
        if failed is not None and not any(equal):
            message = f"math-verify: {failed.message or failed.kind}"
            failures.append(Failure(index, str(failed.kind), message, failed.traceback))
            values.append(None)
        else:
            values.append(float(any(equal)) if equal else None)
    return Scores(values, failures)


_Question = tuple[tuple[str, ...], tuple[str, ...]]


def _questions(completion: str, row: Mapping[str, Any], params: MathEquivalentParams) -> list[_Question]:
    """Return (forms of a right answer, forms of the completion's answer), each to be parsed in turn, for each of the
    row's right answers."""
    golds = right_answers(row, params.marker)
    answer = _readings(_completion_answer(completion, params)) if golds else ()
    return [(_readings(gold.strip()), answer) for gold in golds]


def _completion_answer(completion: str, params: MathEquivalentParams) -> str:
    is_anywhere = params.source == "anywhere"
    for source in ("answer tag", "boxed", "after marker") if is_anywhere else (params.source,):
        answer = answer_at(completion, source, tag=params.tag, marker=params.marker)
        if answer is not None:
            return f"\\boxed{{{answer}}}" if source == "boxed" else answer
    return completion if is_anywhere else ""


def _readings(text: str) -> tuple[str, ...]:
    r"""Return the forms of a text to parse in turn: a bare \\frac{1}{2} is a formula only between dollar signs, while a
    sentence can be parsed only without them."""
    text = text.strip()[-MAX_ANSWER_CHARS:].encode("utf-8", "replace").decode()
    if any(sign in text for sign in _DELIMITERS):
        return (f"${text}$", text) if text.startswith("\\boxed") else (text,)
    if "\\" in text:
        return (f"${text}$", text)
    return (text,) if _WORD.search(text) else (f"${text}$", text)


REWARDS = (
    Reward(
        key="math_equivalent",
        title="Math equivalence",
        help="1 if math-verify finds the completion's expression equal to the dataset's.",
        batch=math_equivalent,
        params=MathEquivalentParams,
        needs=("answer",),
        cost=Cost.SANDBOX,
        low="A different value, or no expression.",
        high="The same value, however it is written.",
        use="For mathematics beyond plain numbers: fractions, roots, polynomials, sets, intervals.",
        examples=(
            Example(r"So it is \boxed{0.5}.", 1.0, row={"answer": r"\frac{1}{2}"}, why="Both are one half."),
            Example(
                r"<answer>$(x+1)^2$</answer>",
                1.0,
                row={"answer": "$x^2 + 2x + 1$"},
                why="The square expands to the answer.",
            ),
            Example(r"So it is \boxed{\sqrt{8}}.", 0.0, row={"answer": r"2\sqrt{3}"}, why="√8 is 2√2."),
        ),
    ),
)
