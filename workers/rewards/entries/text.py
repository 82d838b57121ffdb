"""Rewards for the text's length, its variety, and how little it repeats itself."""

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


def within(number: int, minimum: int, target: int, maximum: int) -> float:
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
    unit: str = param("characters", "What is counted.", choices=("characters", "words"))
    target: int = param(200, "Up to this length the score is 1.", min=0, max=1_000_000)
    maximum: int = param(400, "From this length on the score is 0; in between it falls evenly.", min=1, max=1_000_000)
    minimum: int = param(0, "Below this length the score falls evenly to 0 for an empty text.", min=0, max=1_000_000)

    def problem(self) -> str | None:
        return bounds_problem(self.minimum, self.target, self.maximum)


@dataclass(frozen=True)
class OverlongParams(Params):
    unit: str = param("tokens", "What is counted.", choices=("tokens", "characters", "words"))
    maximum: int = param(
        1024, "From this length on, the full punishment: the run's longest completion.", min=1, max=1_000_000
    )
    buffer: int = param(256, "The punishment grows evenly over this many before the maximum.", min=0, max=1_000_000)
    punishment: float = param(-1.0, "Score at the maximum and beyond.", min=-100.0, max=0.0)

    def problem(self) -> str | None:
        return "buffer: must not be above maximum" if self.buffer > self.maximum else None


@dataclass(frozen=True)
class RepetitionPenaltyParams(Params):
    size: int = param(3, "Words (or characters) in a row that form one piece.", min=1, max=50)
    unit: str = param("words", "Characters suit languages without spaces.", choices=("words", "characters"))
    ignore_case: bool = param(True, "The and the are equal.")
    penalty: float = param(-1.0, "Score of a text that only repeats itself.", min=-100.0, max=0.0)


def unique_chars(completion: str, row: Mapping[str, Any], params: UniqueCharsParams) -> float:
    """Return 0 and up, unbounded. 0: an empty text; higher: more different characters, about 30 to 60 in a page of
    English. For variety. Beside a reward of 0 or 1 it drowns that one: give it a weight near 0.01, or take the
    normalized one."""
    return float(_different(_prepared(completion, params)))


def unique_chars_normalised(completion: str, row: Mapping[str, Any], params: UniqueCharsParams) -> float:
    """Return 0 to 1. 1: no character comes twice. 0: an empty text; long ones lie near 0, since alphabets are finite.
    For variety on the scale of other rewards; it favours short texts."""
    text = _prepared(completion, params)
    return _different(text) / len(text) if text else 0.0


def length(completion: str, row: Mapping[str, Any], params: LengthParams) -> float:
    """Return 0 to 1. 1: from `minimum` up to `target`. 0: `maximum` and longer, or empty where there is a minimum.
    Keeps answers near a length; to punish only what is about to be cut off, take "Length penalty"."""
    size = len(completion.split()) if params.unit == "words" else len(completion)
    return within(size, params.minimum, params.target, params.maximum)


def overlong(completion: Completion, row: Mapping[str, Any], params: OverlongParams) -> float:
    """Return `punishment` to 0. 0: no longer than maximum - buffer. `punishment`: at the maximum and beyond. Evenly
    between. The soft overlong punishment of DAPO (arXiv:2503.14476, equation 13): completions that are about to be cut
    off learn to end, and those that were cut off don't count as merely wrong. Raises Unavailable where tokens are asked
    for and nobody counted them."""
    size = _size(completion, params.unit)
    beyond = size - (params.maximum - params.buffer)
    if beyond <= 0:
        return 0.0
    return params.punishment * min(1.0, beyond / params.buffer if params.buffer else 1.0)


def repetition_penalty(completion: str, row: Mapping[str, Any], params: RepetitionPenaltyParams) -> float:
    """Return `penalty` to 0. 0: no piece of `size` words comes twice. Toward `penalty`: nearly all pieces are
    repetitions. The score is (1 - different pieces / all pieces) * penalty, as in "Demystifying Long Chain-of-Thought
    Reasoning in LLMs" (arXiv:2502.03373, appendix C.2) there on tokens. Against loops, which rewards on length
    invite."""
    text = completion.casefold() if params.ignore_case else completion
    units = text if params.unit == "characters" else text.split()
    count = len(units) - params.size + 1
    if count < 2:
        return 0.0
    different = len(set(zip(*(units[start : start + count] for start in range(params.size)), strict=True)))
    return params.penalty * (1 - different / count) + 0.0  # never -0.0


def _different(text: str) -> int:
    """Count different characters; for a long ASCII text, testing each ASCII character takes half the time."""
    return sum(map(text.__contains__, _ASCII)) if len(text) > 1_000 and text.isascii() else len(set(text))


def _size(completion: Completion, unit: str) -> int:
    if unit == "characters":
        return len(completion.text)
    if unit == "words":
        return len(completion.text.split())
    if completion.tokens is None:
        raise Unavailable("Tokens aren't counted here. Choose characters or words, or a run's completions.")
    return completion.tokens


def _prepared(text: str, params: UniqueCharsParams) -> str:
    text = text.lower() if params.ignore_case else text
    return "".join(text.split()) if params.ignore_spaces else text


REWARDS = (
    Reward(
        key="length",
        title="Length",
        help="1 up to a target length, falling evenly to 0 at a maximum.",
        function=length,
        params=LengthParams,
        low="As long as the maximum or longer, or empty where there is a minimum.",
        high="Between the minimum and the target.",
        use="To keep answers near a length. To punish only what is about to be cut off, take “Length penalty”.",
        examples=(
            Example("a b c", 0.5, params={"unit": "words", "target": 2, "maximum": 4}, why="Halfway from 2 to 4."),
            Example("a b", 1.0, params={"unit": "words", "target": 2, "maximum": 4}, why="Not above the target."),
        ),
    ),
    Reward(
        key="overlong",
        title="Length penalty",
        help="Nothing up to a length, then a punishment that grows evenly to the maximum.",
        whole=overlong,
        params=OverlongParams,
        range=(-1.0, 0.0),
        range_of=lambda params: (params.punishment, 0.0),
        low="As long as the maximum or longer: it was probably cut off.",
        high="Short enough to leave the buffer free.",
        use="With the run's longest completion as its maximum, so that thoughts end before they are cut off.",
        examples=(
            Example("…", 0.0, tokens=700, why="768 tokens are free of it: 1,024 less the buffer of 256."),
            Example("…", -0.5, tokens=896, why="128 of the buffer's 256 tokens are used."),
            Example("…", -1.0, tokens=1024, why="At the maximum the punishment is whole."),
        ),
    ),
    Reward(
        key="repetition_penalty",
        title="Repetition penalty",
        help="Costs the share of pieces (three words in a row) that came before.",
        function=repetition_penalty,
        params=RepetitionPenaltyParams,
        range=(-1.0, 0.0),
        range_of=lambda params: (params.penalty, 0.0),
        low="Nearly every piece is a repetition of an earlier one.",
        high="No piece comes twice.",
        use="When completions fall into loops, which rewards on length and on format invite.",
        examples=(
            Example("one two three four five", 0.0, why="Its three pieces are all different."),
            Example("so so so so so so", -0.75, why="Of its four pieces one is new: 1 - 1/4."),
        ),
    ),
    Reward(
        key="unique_chars",
        title="Unique characters",
        help="How many different characters the completion has. Unbounded: give it a small weight.",
        function=unique_chars,
        params=UniqueCharsParams,
        range=(0.0, None),
        typical=(15.0, 60.0),
        low="An empty text.",
        high="As many as the text has: a page of English has 30 to 60, one with several scripts hundreds.",
        use="For variety, with a weight near 0.01: beside a reward of 0 or 1 it says nearly everything by itself.",
        examples=(
            Example("abca", 3.0, why="a, b and c."),
            Example("The answer is 7.", 12.0, why="Twelve different ones: space, full stop, T and t count too."),
        ),
    ),
    Reward(
        key="unique_chars_normalised",
        title="Unique characters, normalized",
        help="Different characters divided by all characters.",
        function=unique_chars_normalised,
        params=UniqueCharsParams,
        low="An empty text, or a very long one.",
        high="No character comes twice.",
        use="For variety on the scale of other rewards. It favors short texts.",
        examples=(Example("abca", 0.75, why="3 different ones of 4."),),
    ),
)
