"""Every reward there is, by key. A run's spec names these keys: never rename one, and never change what one means."""

from __future__ import annotations

from workers.rewards import answer, python_code, tags, text
from workers.rewards.reward import Reward

_REWARDS = (
    Reward(
        key="think_tags",
        title="Thinks in tags",
        help="1 when the completion opens with one <think>…</think> block with something in it and goes on after it.",
        function=tags.think_tags,
        params=tags.ThinkTagsParams,
        range=(0.0, 1.0),
    ),
    Reward(
        key="answer_tag",
        title="Answers in a tag",
        help="1 when there is exactly one <answer>…</answer> with something in it.",
        function=tags.answer_tag,
        params=tags.AnswerTagParams,
        range=(0.0, 1.0),
    ),
    Reward(
        key="exact_match",
        title="Exact match",
        help="1 when the completion's answer is the dataset's, up to white space.",
        function=answer.exact_match,
        params=answer.ExactMatchParams,
        range=(0.0, 1.0),
        needs=("answer",),
    ),
    Reward(
        key="numeric_match",
        title="Right number",
        help="1 when the completion's number equals the dataset's: 1,234 and $1234.00 are one number, 3/4 is 0.75.",
        function=answer.numeric_match,
        params=answer.NumericMatchParams,
        range=(0.0, 1.0),
        needs=("answer",),
    ),
    Reward(
        key="python_syntax",
        title="Python that parses",
        help="1 when the last code block is valid Python. Syntax only: the code is never run.",
        function=python_code.python_syntax,
        params=python_code.PythonSyntaxParams,
        range=(-1.0, 1.0),
    ),
    Reward(
        key="length",
        title="Length",
        help="1 up to a target length, falling evenly to 0 at a maximum.",
        function=text.length,
        params=text.LengthParams,
        range=(0.0, 1.0),
    ),
    Reward(
        key="unique_chars",
        title="Unique characters",
        help="How many different characters the completion has. Unbounded: give it a small weight.",
        function=text.unique_chars,
        params=text.UniqueCharsParams,
        range=(0.0, None),
    ),
    Reward(
        key="unique_chars_normalised",
        title="Unique characters, normalised",
        help="Different characters divided by all characters.",
        function=text.unique_chars_normalised,
        params=text.UniqueCharsParams,
        range=(0.0, 1.0),
    ),
)

LIBRARY: dict[str, Reward] = {reward.key: reward for reward in _REWARDS}
