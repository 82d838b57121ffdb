"""Multiple choice: the choices that are put below a question, and the letter of the right one."""

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.catalogue.datasets.reader.columns.fields import RowProblem, answers, kind, parse_list
from controlplane.catalogue.datasets.reader.columns.paths import value_of

FROM_0, FROM_1 = "from 0", "from 1"
NUMBERINGS = {"": "Letters, labels or texts", FROM_0: "Numbers from 0", FROM_1: "Numbers from 1"}
"""Ways in which a file names the right choice, with their titles."""
LETTERS = string.ascii_uppercase
_NUMBER = re.compile(r"\d{1,2}(?:\.0)?")
_LETTER = re.compile(r"\(?([A-Za-z])(?:[).:].*)?", re.DOTALL)
_LABELLED = re.compile(r"\(?([A-Z])[).:]\s*+(?=\S)")


def choices_of(row: Mapping[str, Any], name: str) -> tuple[list[str], list[str]]:
    """Return (texts, labels) of a row's choices. Raises RowProblem unless there are 2 to 26."""
    value = value_of(row, name)
    value = parse_list(value) if isinstance(value, str) else value
    labels: list[str] = []
    if isinstance(value, dict):
        labels = [str(label) for label in value.get("label", value.get("labels")) or ()]
        value = value.get("text", value.get("texts", value.get("choices")))
        value = value if value is not None else _by_letter(value_of(row, name))
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        labels = [str(item.get("label", item.get("key", ""))) for item in value]
        value = [item.get("text", item.get("content", item.get("value"))) for item in value]
    if not (isinstance(value, list) and 2 <= len(value) <= len(LETTERS) and all(_is_choice(item) for item in value)):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; choices must be a list of 2 to 26 strings.", name)
    texts = [str(item).strip() for item in value]
    if all(match and match[1] == LETTERS[n] for n, match in enumerate(map(_LABELLED.match, texts))):
        texts = [_LABELLED.sub("", text, count=1) for text in texts]  # they have their letters already
    return texts, labels if len(labels) == len(texts) else []


def below(prompt: str, texts: Sequence[str]) -> str:
    """Put lettered choices below a question."""
    return "\n".join([f"{prompt}\n", *(f"{LETTERS[number]}) {text}" for number, text in enumerate(texts))])


def right_letters(row: Mapping[str, Any], answer: str, choices: str, numbering: str) -> list[str]:
    """Return the letters of the right choices that the answer column names. Without a column of `choices`, which a
    template may show instead, only numbers become letters. Raises RowProblem if the choices are unusable, or if an
    answer names none of them."""
    texts, labels = choices_of(row, choices) if choices else ([], [])
    return [_letter(named.strip(), texts, labels, numbering, answer) for named in answers(row, answer)]


def _letter(named: str, texts: Sequence[str], labels: Sequence[str], numbering: str, column: str) -> str:
    count = len(texts) or len(LETTERS)
    if numbering:
        number = int(float(named)) - int(numbering[-1]) if _NUMBER.fullmatch(named) else -1
        if 0 <= number < count:
            return LETTERS[number]
    elif named in labels:
        return LETTERS[labels.index(named)]
    elif list(texts).count(named) == 1:
        return LETTERS[list(texts).index(named)]
    elif (match := _LETTER.fullmatch(named)) and LETTERS.index(match[1].upper()) < count:
        return match[1].upper()
    elif not texts:
        return named
    raise RowProblem("wrong_type", f"“{column}” is “{named[:40]}”, which names none of the {count} choices.", column)


def _is_choice(value: Any) -> bool:
    return isinstance(value, str | int | float) and bool(str(value).strip())


def _by_letter(value: Any) -> list[Any] | None:
    """Return the choices of {"A": …, "B": …}, in the order of their letters."""
    letters = list(LETTERS[: len(value)])
    return [value[letter] for letter in letters] if sorted(value) == letters else None
