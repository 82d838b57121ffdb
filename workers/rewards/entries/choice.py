"""Correctness rewards for multiple choice and for short free answers (token-level F1)."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.extract import PUNCTUATION, answer_at, first_answer, right_answers
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Example, Reward

MAX_COUNTED = 8
"""Upper bound (exclusive) of an answer's distinct words for which each word is counted separately, which is faster."""
NUMBERING = ("letters", "numbers from 0", "numbers from 1")
# Every repeat is bounded, so a match takes constant time. The text is lower case by then.
_STATED_LETTER = re.compile(
    r"(?:answer|option|choice)[ \t]{0,3}(?:is|was|:|=)?[ \t:]{0,3}(?:the[ \t])?(?:option[ \t])?[ \t*_(\[{\"'`]{0,6}"
    r"([a-z])(?![a-z'’])"
)
_WORD_FOLLOWS = re.compile(r"[ \t]{1,3}\w")
_STATING_WORDS = ("answer", "option", "choice")
MAX_STATEMENTS = 20
"""Maximum number of occurrences of _STATING_WORDS that are checked, from the end of the text."""
_LETTER_ALONE = re.compile(r"[ \t*_(\[{\"'`]{0,6}([A-Za-z])[ \t*_)\]}\"'`.:,]{0,6}")
_LEADING_LETTER = re.compile(r"[ \t*_(\[{\"'`]{0,6}([A-Za-z])[)\].:][ \t*_]{0,6}\S")
_ARTICLES = {"a", "an", "the"}
_TO_SPACES = str.maketrans(dict.fromkeys(PUNCTUATION, " "))


@dataclass(frozen=True)
class MultipleChoiceParams(Params):
    options: int = param(4, "Number of options; 4 means A to D.", min=2, max=26)
    source: str = param(
        "anywhere",
        "Where to find the completion's choice. “Anywhere” tries the answer tag, then a box, then the marker, then "
        "“the answer is B”, then a last line that is only a letter.",
        choices=("anywhere", "answer tag", "after marker", "boxed"),
    )
    tag: str = param("answer", "Name of the answer tag.")
    marker: str = param("####", "The text before the answer, in the completion and in the dataset's answer.")
    numbering: str = param("letters", "How the dataset's answer names the right option.", choices=NUMBERING)


@dataclass(frozen=True)
class TokenF1Params(Params):
    source: str = param(
        "anywhere",
        "Where to find the completion's answer. “Anywhere” tries the answer tag, then a box, then the marker, then "
        "the whole text.",
        choices=("anywhere", "answer tag", "after marker", "boxed", "whole text"),
    )
    tag: str = param("answer", "Name of the answer tag.")
    marker: str = param("####", "The text before the answer, in the completion and in the dataset's answer.")
    skip_articles: bool = param(True, "Ignore a, an and the.")


def multiple_choice(completion: str, row: Mapping[str, Any], params: MultipleChoiceParams) -> float | None:
    """Return 1 if the completion chooses the dataset's option, or 0 if it chooses another, none, or one that doesn't
    exist. Return None if the row's answer names no option. Guessing earns 1 / `options` on average."""
    right_options = {_right_option(text.strip(), params) for text in right_answers(row, params.marker)} - {None}
    if not right_options:
        return None
    return float(_chosen_option(completion, params) in right_options)


def token_f1(completion: str, row: Mapping[str, Any], params: TokenF1Params) -> float | None:
    """Return the token-level F1 of the completion's answer (the harmonic mean of precision and recall), as SQuAD scores
    it (arXiv:1606.05250). With several right answers in the row, return the highest F1; without any, None."""
    golds = right_answers(row, params.marker)
    if not golds:
        return None
    answer = _answer_text(completion, params)
    completion_words = words(answer, skip_articles=params.skip_articles)
    return max(
        _f1(completion_words, words(gold, skip_articles=params.skip_articles))
        if words(gold, skip_articles=False)
        else float(answer.split() == gold.split())  # punctuation alone would equal any other punctuation
        for gold in golds
    )


def words(text: str, *, skip_articles: bool = True) -> list[str]:
    """Split a text into words for comparison, ignoring case and punctuation."""
    tokens = text.casefold().translate(_TO_SPACES).split()
    return [word for word in tokens if word not in _ARTICLES] if skip_articles else tokens


def _right_option(text: str, params: MultipleChoiceParams) -> int | None:
    """Return the index, counted from 0, of the option that an answer names, or None if it names none."""
    if params.numbering != "letters":
        number = int(text) - int(params.numbering[-1]) if text.isascii() and text.isdecimal() and len(text) < 4 else -1
        return number if 0 <= number < params.options else None
    match = _LETTER_ALONE.fullmatch(text) or _LEADING_LETTER.match(text)
    return _option(match[1], params) if match else None


def _chosen_option(completion: str, params: MultipleChoiceParams) -> int | None:
    is_anywhere = params.source == "anywhere"
    for source in ("answer tag", "boxed", "after marker") if is_anywhere else (params.source,):
        answer = answer_at(completion, source, tag=params.tag, marker=params.marker) or ""
        content = (_unwrap(answer) if source == "boxed" else answer).strip()
        if match := _LETTER_ALONE.fullmatch(content) or _LEADING_LETTER.match(content):
            return _option(match[1], params)
    if not is_anywhere:
        return None
    if (letter := _stated_letter(completion)) is not None:
        return _option(letter, params)
    last_line = completion.rstrip().rpartition("\n")[2].strip()
    match = _LETTER_ALONE.fullmatch(last_line)
    return _option(match[1], params) if match else None


def _stated_letter(completion: str) -> str | None:
    """Return the letter of the last "the answer is B", or None. A lower-case letter is accepted only if no word follows
    it, unlike in "is a city"."""
    text = completion.lower()
    keeps_case = len(text) == len(completion)  # if lower-casing changed the length, treat all letters as lower case
    last_positions = {word: text.rfind(word) for word in _STATING_WORDS}
    for _ in range(MAX_STATEMENTS):
        word, start = max(last_positions.items(), key=lambda item: item[1])
        if start < 0:
            break
        match = _STATED_LETTER.match(text, start)
        is_capital = match is not None and keeps_case and completion[match.start(1)].isupper()
        if match and (is_capital or not _WORD_FOLLOWS.match(text, match.end())):
            return match[1]
        last_positions[word] = text.rfind(word, 0, start)
    return None


def _unwrap(box: str) -> str:
    r"""Remove a command such as \\text{B} from a boxed letter."""
    for command in ("\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{"):
        if box.startswith(command) and box.endswith("}"):
            return box[len(command) : -1]
    return box


def _option(letter: str, params: MultipleChoiceParams) -> int | None:
    number = ord(letter.upper()) - ord("A")
    return number if 0 <= number < params.options else None


def _answer_text(completion: str, params: TokenF1Params) -> str:
    if params.source == "anywhere":
        sources = ("answer tag", "boxed", "after marker")
        return first_answer(completion, sources, tag=params.tag, marker=params.marker)
    return answer_at(completion, params.source, tag=params.tag, marker=params.marker) or ""


def _f1(completion_words: list[str], gold: list[str]) -> float:
    if not completion_words or not gold:
        return float(completion_words == gold)
    counts = Counter(gold)
    if len(counts) < MAX_COUNTED:
        shared = sum(min(count, completion_words.count(word)) for word, count in counts.items())
    else:
        shared = sum((counts & Counter(completion_words)).values())
    return 2 * shared / (len(completion_words) + len(gold))


REWARDS = (
    Reward(
        key="multiple_choice",
        title="Multiple choice",
        help="1 if the completion chooses the dataset's option (A, B, C …).",
        function=multiple_choice,
        params=MultipleChoiceParams,
        needs=("answer",),
        low="A wrong option, no option, or one that doesn't exist.",
        high="The dataset's option.",
        use="For questions with lettered options. Guessing among four earns 0.25 on average, so compare the mean with "
        "that.",
        examples=(
            Example("Paris is the capital, so the answer is (B).", 1.0, row={"answer": "B"}, why="It says so."),
            Example("<answer>C</answer>", 0.0, row={"answer": "B. Paris"}, why="C isn't B."),
            Example("<answer>B</answer>", 1.0, row={"answer": "1"}, params={"numbering": "numbers from 0"},
                    why="The dataset counts from 0: its 1 is B."),
        ),
    ),
    Reward(
        key="token_f1",
        title="Token F1",
        help="Token-level F1 between the completion's answer and the dataset's, as SQuAD scores it.",
        function=token_f1,
        params=TokenF1Params,
        needs=("answer",),
        low="No word in common.",
        high="The same words, in any order.",
        use="For short free answers that deserve partial credit. Not for numbers: 12 and 13 share nothing.",
        examples=(
            Example("<answer>the Eiffel Tower</answer>", 1.0, row={"answer": "Eiffel tower"},
                    why="Case and articles are ignored."),
            Example("<answer>Gustave Eiffel built it</answer>", 2 / 3, row={"answer": "Gustave Eiffel"},
                    why="Precision is 2 of 4 words and recall 2 of 2: F1 is 2·2/(4+2)."),
        ),
    ),
)  # fmt: skip
