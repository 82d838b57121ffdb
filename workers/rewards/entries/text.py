"""Rewards for the length of a text, its variety, and how little it repeats itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Example, Reward
from workers.rewards.tools import Unavailable


def bounds_problem(minimum: int, target: int, maximum: int) -> str | None:
    if minimum > target:
        return "minimum: must not be above target"
    return None if target < maximum else "maximum: must be above target"


def ramp_score(number: int, minimum: int, target: int, maximum: int) -> float:
    """Return 1 from the minimum up to the target, falling linearly to 0 at zero and at the maximum."""
    if number < minimum:
        return number / minimum
    return 1.0 if number <= target else max(0.0, (maximum - number) / (maximum - target))


_ASCII = tuple(map(chr, range(128)))


@dataclass(frozen=True)
class UniqueCharsParams(Params):
    ignore_case: bool = param(False, "Count A and a as one character.")
    ignore_spaces: bool = param(False, "Ignore white space.")


@dataclass(frozen=True)
class LengthParams(Params):
    unit: str = param("characters", "What to count.", choices=("characters", "words"))
    target: int = param(200, "Up to this length the score is 1.", min=0, max=1_000_000)
    maximum: int = param(
        400, "From this length on the score is 0; from the target it falls linearly.", min=1, max=1_000_000
    )
    minimum: int = param(0, "Below this length the score falls linearly to 0 for an empty text.", min=0, max=1_000_000)

    def problem(self) -> str | None:
        return bounds_problem(self.minimum, self.target, self.maximum)


@dataclass(frozen=True)
class OverlongParams(Params):
    unit: str = param("tokens", "What to count.", choices=("tokens", "characters", "words"))
    maximum: int = param(
        1024,
        "From this length on, the penalty is full. Use the run's maximum completion length.",
        min=1,
        max=1_000_000,
    )
    buffer: int = param(256, "Length before the maximum over which the penalty grows linearly.", min=0, max=1_000_000)
    punishment: float = param(-1.0, "Score at the maximum and beyond.", min=-100.0, max=0.0)

    def problem(self) -> str | None:
        return "buffer: must not be above maximum" if self.buffer > self.maximum else None


@dataclass(frozen=True)
class RepetitionPenaltyParams(Params):
    size: int = param(3, "Words (or characters) in a row that form one piece.", min=1, max=50)
    unit: str = param(
        "words", "What pieces consist of. Use characters for languages without spaces.", choices=("words", "characters")
    )
    ignore_case: bool = param(True, "Treat The and the as equal.")
    penalty: float = param(-1.0, "Score of a text that only repeats itself.", min=-100.0, max=0.0)


def unique_chars(completion: str, row: Mapping[str, Any], params: UniqueCharsParams) -> float:
    """Return the number of different characters, about 30 to 60 for a page of English and 0 for an empty text."""
    return float(_count_distinct(_prepare(completion, params)))


def unique_chars_normalised(completion: str, row: Mapping[str, Any], params: UniqueCharsParams) -> float:
    """Return the number of different characters divided by the number of all characters: 1 if no character repeats,
    0 for an empty text. Long texts score lower, because characters repeat."""
    text = _prepare(completion, params)
    return _count_distinct(text) / len(text) if text else 0.0


def length(completion: str, row: Mapping[str, Any], params: LengthParams) -> float:
    """Return 1 for a length from `minimum` to `target`, falling linearly to 0 at `maximum`, and at zero if there is a
    minimum."""
    size = len(completion.split()) if params.unit == "words" else len(completion)
    return ramp_score(size, params.minimum, params.target, params.maximum)


def overlong(completion: Completion, row: Mapping[str, Any], params: OverlongParams) -> float:
    """Return 0 up to a length of maximum - buffer, and above it a score that falls linearly to `punishment` at the
    maximum and beyond. This is DAPO's soft overlong punishment (arXiv:2503.14476, equation 13): it teaches the model to
    finish before it is truncated. Raises Unavailable if the unit is tokens but none were counted."""
    size = _size(completion, params.unit)
    excess = size - (params.maximum - params.buffer)
    if excess <= 0:
        return 0.0
    return params.punishment * min(1.0, excess / params.buffer if params.buffer else 1.0)


def repetition_penalty(completion: str, row: Mapping[str, Any], params: RepetitionPenaltyParams) -> float:
    """Return (1 - different pieces / all pieces) * penalty, where a piece is `size` adjacent words or characters.
    "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv:2502.03373, appendix C.2) uses tokens instead."""
    text = completion.casefold() if params.ignore_case else completion
    units = text if params.unit == "characters" else text.split()
    count = len(units) - params.size + 1
    if count < 2:
        return 0.0
    distinct_count = len(set(zip(*(units[start : start + count] for start in range(params.size)), strict=True)))
    return params.penalty * (1 - distinct_count / count) + 0.0  # never -0.0


def _count_distinct(text: str) -> int:
    """Count distinct characters. In a long ASCII text, testing for each ASCII character takes half the time."""
    return sum(map(text.__contains__, _ASCII)) if len(text) > 1_000 and text.isascii() else len(set(text))


def _size(completion: Completion, unit: str) -> int:
    if unit == "characters":
        return len(completion.text)
    if unit == "words":
        return len(completion.text.split())
    if completion.tokens is None:
        raise Unavailable("Tokens aren't counted here. Choose characters or words, or use a run's completions.")
    return completion.tokens


def _prepare(text: str, params: UniqueCharsParams) -> str:
    text = text.lower() if params.ignore_case else text
    return "".join(text.split()) if params.ignore_spaces else text


REWARDS = (
    Reward(
        key="length",
        title="Length",
        help="1 up to a target length, falling linearly to 0 at a maximum.",
        function=length,
        params=LengthParams,
        low="At least as long as the maximum, or empty if there is a minimum.",
        high="Between the minimum and the target.",
        use="To keep answers near a length. To penalize only answers about to be truncated, use “Length penalty”.",
        examples=(
            Example("a b c", 0.5, params={"unit": "words", "target": 2, "maximum": 4}, why="Halfway from 2 to 4."),
            Example("a b", 1.0, params={"unit": "words", "target": 2, "maximum": 4}, why="Not above the target."),
        ),
    ),
    Reward(
        key="overlong",
        title="Length penalty",
        help="0 up to a length, then a penalty that grows linearly up to a maximum length.",
        whole=overlong,
        params=OverlongParams,
        range=(-1.0, 0.0),
        range_of=lambda params: (params.punishment, 0.0),
        low="At least as long as the maximum, so it was probably truncated.",
        high="Too short to reach into the buffer.",
        use="To make the model finish before it is truncated. Set the maximum to the run's maximum completion length.",
        examples=(
            Example("…", 0.0, tokens=700, why="Up to 768 tokens (1,024 minus the buffer of 256) there is no penalty."),
            Example("…", -0.5, tokens=896, why="128 of the buffer's 256 tokens are used."),
            Example("…", -1.0, tokens=1024, why="At the maximum the penalty is full."),
        ),
    ),
    Reward(
        key="repetition_penalty",
        title="Repetition penalty",
        help="A penalty for the share of pieces (three words in a row) that repeat earlier ones.",
        function=repetition_penalty,
        params=RepetitionPenaltyParams,
        range=(-1.0, 0.0),
        range_of=lambda params: (params.penalty, 0.0),
        low="Nearly every piece repeats an earlier one.",
        high="No piece occurs twice.",
        use="If completions fall into loops, which rewards for length and format encourage.",
        examples=(
            Example("one two three four five", 0.0, why="Its three pieces are all different."),
            Example("so so so so so so", -0.75, why="Only one of its four pieces is new: 1 - 1/4."),
        ),
    ),
    Reward(
        key="unique_chars",
        title="Unique characters",
        help="Number of different characters in the completion. It is unbounded, so give it a small weight.",
        function=unique_chars,
        params=UniqueCharsParams,
        range=(0.0, None),
        typical=(15.0, 60.0),
        low="An empty text.",
        high="There is no maximum: a page of English has 30 to 60, one in several scripts hundreds.",
        use="For variety, with a weight near 0.01: with a larger weight it drowns out a reward of 0 or 1.",
        examples=(
            Example("abca", 3.0, why="a, b and c."),
            Example("The answer is 7.", 12.0, why="Space and full stop count, and T and t are different."),
        ),
    ),
    Reward(
        key="unique_chars_normalised",
        title="Unique characters, normalized",
        help="Number of different characters divided by the number of all characters.",
        function=unique_chars_normalised,
        params=UniqueCharsParams,
        low="An empty text, or a very long one.",
        high="No character occurs twice.",
        use="For variety on the scale of other rewards. It favors short texts.",
        examples=(Example("abca", 0.75, why="3 of 4 characters are different."),),
    ),
)
