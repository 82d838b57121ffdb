"""Signs in the texts of completions."""

from __future__ import annotations

from runs.insight.health import texts

PROSE = (
    "First we add the two numbers and carry the one, then we check the result by subtracting it again. "
    "Strengths of this approach: it needs no table, and every step can be explained to a child."
)
CODE = (
    "def total(xs):\n    acc = 0\n    for x in xs:\n        acc += x\n    return acc\n\nprint(total([1, 2, 3]) == 6)\n"
    * 3
)
GIBBERISH = "xkqzvbt réалис KEYдн wrtpqz zu lkjhgfd mnbvcxz qwrtpsd таmы fghjkl bvcxzlk пrst hjklmn dfgq"
CHINESE = "我们用Python写一个函数，设x=3，则y=5。" * 12


def test_gibberish_is_told_from_prose_code_and_other_scripts() -> None:
    assert texts.is_gibberish(GIBBERISH)
    assert not any(map(texts.is_gibberish, (PROSE, CODE, CHINESE, "", "7")))


def test_signs_are_counted_once_each() -> None:
    sample = [PROSE, PROSE, GIBBERISH, "", "7", "7"]
    assert texts.count(sample) == (6, 0, 1, 2, 1)
