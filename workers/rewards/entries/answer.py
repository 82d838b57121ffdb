"""Correctness rewards that compare the completion's answer with the row's answer, as strings or as numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from workers.rewards.extract import PUNCTUATION, answer_at, right_answers
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Example, Reward

SOURCES = ("answer tag", "after marker", "boxed", "whole text")
MAX_NUMBER_CHARS = 100
END_CHARS = 120
"""Number of characters at the end of a long text in which its last number is searched for first."""

# No two adjacent parts can match the same character, so a search takes linear time.
_NUMBER = re.compile(
    r"""(?<![\w.])
        (?: -?[$€£]? | [$€£]- )
        (?: [0-9]{1,3}(?:,[0-9]{3})+(?![0-9]) | [0-9]+ | (?=\.[0-9]) )
        (?: \.[0-9]+ )?
        (?: [eE][+-]?[0-9]{1,3}(?![0-9]) )?
        (?: [ \u00a0]?% )?""",
    re.VERBOSE,
)
_NOT_DIGITS = str.maketrans("", "", "$€£,% \t\n\u00a0")
_FRACTION = re.compile(r"(-?[0-9]{1,18})\s?/\s?([0-9]{1,18})")


@dataclass(frozen=True)
class ExactMatchParams(Params):
    source: str = param("whole text", "Where to find the completion's answer.", choices=SOURCES)
    tag: str = param("answer", "Name of the tag if the source is the answer tag.")
    marker: str = param("####", "The text before the answer if the source is a marker.")
    ignore_case: bool = param(True, "Treat A and a as equal.")
    ignore_punctuation: bool = param(False, "Ignore punctuation at both ends.")


@dataclass(frozen=True)
class NumericMatchParams(Params):
    source: str = param(
        "anywhere",
        "Where to find the completion's number. “Anywhere” tries the answer tag, then the marker, then a box, "
        "then the last number in the text.",
        choices=("anywhere", "answer tag", "after marker", "boxed", "last number"),
    )
    tag: str = param("answer", "Name of the answer tag.")
    marker: str = param("####", "The text before the answer, in the completion and in the dataset's answer.")
    tolerance: float = param(1e-6, "Largest difference at which two numbers are treated as equal.", min=0.0, max=1e9)
    relative: bool = param(False, "Make the tolerance relative to the right answer instead of absolute.")


def exact_match(completion: str, row: Mapping[str, Any], params: ExactMatchParams) -> float | None:
    """Return 1 if the answer equals one of the right ones apart from white space and, depending on `params`, case and
    punctuation at the ends, or 0 if it differs or the completion has no answer where it is expected. Return None if the
    row has no answer."""
    golds = right_answers(row, params.marker)
    if not golds:
        return None
    answer = answer_at(completion, params.source, tag=params.tag, marker=params.marker)
    return float(answer is not None and any(_is_same(answer, gold, params) for gold in golds))


def numeric_match(completion: str, row: Mapping[str, Any], params: NumericMatchParams) -> float | None:
    """Return 1 if the number equals a right one within the tolerance, however they are written (1,234 and $1234.00, 3/4
    and 0.75, 50% and 0.5), or 0 if the completion has a different number or none. Return None if the row's answers have
    no number."""
    golds = [gold for text in right_answers(row, params.marker) if (gold := _number_of(text)) is not None]
    if not golds:
        return None
    answer = _find_number(completion, params)
    return float(answer is not None and any(_are_equal(answer, gold, params) for gold in golds))


def normalised(text: str, *, ignore_case: bool, ignore_punctuation: bool) -> str:
    """Normalise an answer for comparison, and return it."""
    text = " ".join(text.split())
    text = text.casefold() if ignore_case else text
    return text.strip(PUNCTUATION + " ") if ignore_punctuation else text


@dataclass(frozen=True)
class _Number:
    value: Decimal
    percent: bool


def _find_number(completion: str, params: NumericMatchParams) -> _Number | None:
    sources = (
        ("answer tag", "after marker", "boxed", "last number") if params.source == "anywhere" else (params.source,)
    )
    for source in sources:
        answer = answer_at(completion, source, tag=params.tag, marker=params.marker)
        if answer is not None and (number := _number_of(answer)) is not None:
            return number
    return None


def _number_of(text: str) -> _Number | None:
    """Parse the whole text as a fraction if it is one, otherwise the last number in it; return None if there is no
    number."""
    text = text.replace("\u2212", "-").strip()
    if fraction := _FRACTION.fullmatch(text):
        numerator, denominator = Decimal(fraction[1]), Decimal(fraction[2])
        return _Number(numerator / denominator, percent=False) if denominator else None
    # No number spans white space (except before its %), so the last number near the end is the text's last number.
    tokens = _NUMBER.findall(text[-END_CHARS:].partition(" ")[2]) if len(text) > END_CHARS else []
    tokens = tokens or _NUMBER.findall(text)
    if not tokens or len(token := tokens[-1]) > MAX_NUMBER_CHARS:
        return None
    return _Number(Decimal(token.translate(_NOT_DIGITS)), percent=token.endswith("%"))


def _are_equal(answer: _Number, gold: _Number, params: NumericMatchParams) -> bool:
    """Return whether two numbers are equal. 50% equals 50 and, if only one side has the percent sign, also 0.5, since
    people write both."""
    candidates = [(answer.value, gold.value)]
    if answer.percent != gold.percent:
        candidates.append((answer.value / 100, gold.value) if answer.percent else (answer.value, gold.value / 100))
    tolerance = Decimal(repr(params.tolerance))
    return any(abs(a - b) <= (tolerance * abs(b) if params.relative else tolerance) for a, b in candidates)


def _is_same(answer: str, gold: str, params: ExactMatchParams) -> bool:
    count = len(gold.split())
    if not params.ignore_punctuation and len(answer.split(maxsplit=count)) > count:
        return False  # a long text obviously differs and needn't be normalised
    if params.ignore_punctuation and not _comparable(gold, params):
        params = replace(params, ignore_punctuation=False)  # otherwise it would equal any other punctuation
    return _comparable(answer, params) == _comparable(gold, params)


def _comparable(text: str, params: ExactMatchParams) -> str:
    return normalised(text, ignore_case=params.ignore_case, ignore_punctuation=params.ignore_punctuation)


REWARDS = (
    Reward(
        key="exact_match",
        title="Exact match",
        help="1 if the completion's answer equals the dataset's, ignoring white space.",
        function=exact_match,
        params=ExactMatchParams,
        needs=("answer",),
        low="A different answer, or no answer where it is expected.",
        high="The dataset's answer, ignoring white space and case.",
        use="For answers that can be written in only one way: a name, a label, a word.",
        examples=(
            Example(" Paris\n", 1.0, row={"answer": "paris"}, why="White space and case are ignored."),
            Example("It is Paris.", 0.0, row={"answer": "Paris"}, why="The whole text is compared by default."),
            Example("NYC", 1.0, row={"answer": "New York", "other_answers": ["NYC"]}, why="One of two right answers."),
            Example("It is <answer>New  York</answer>.", 1.0, row={"answer": "New York"},
                    params={"source": "answer tag"}, why="The tag's content is the answer."),
        ),
    ),
    Reward(
        key="numeric_match",
        title="Numeric match",
        help="1 if the completion's number equals the dataset's; 1,234 equals $1234.00, and 3/4 equals 0.75.",
        function=numeric_match,
        params=NumericMatchParams,
        needs=("answer",),
        low="A different number, or none.",
        high="The dataset's number, within the tolerance.",
        use="For problems with numeric answers, such as GSM8K's “#### 18”.",
        examples=(
            Example("She makes 9 * 2 = $18.00 a day.", 1.0, row={"answer": "16 - 3 - 4 = 9 eggs.\n#### 18"},
                    why="The last number is 18, and so is the one after ####."),
            Example("<answer>3/4</answer>", 1.0, row={"answer": "0.75"}, why="A fraction is a number."),
            Example("It is 17.", 0.0, row={"answer": "#### 18"}, why="17 isn't 18."),
        ),
    ),
)  # fmt: skip
