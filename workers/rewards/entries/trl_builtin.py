"""TRL's own rewards. They need TRL, and some need token ids, so only the trainer can score with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.rewards.parameters import Params, param
from workers.rewards.reward import BatchFunction, Completion, Cost, Example, Reward, Row, Scores
from workers.rewards.tools import Tools, Unavailable


@dataclass(frozen=True)
class NoParams(Params):
    """Parameters of a reward that has none."""


@dataclass(frozen=True)
class ReasoningParams(Params):
    delimiter: str = param(
        "</think>",
        "The string that ends the reasoning; the answer comes after it.",
        rule=lambda text: not text and "must not be empty",
    )


@dataclass(frozen=True)
class CosineParams(Params):
    max_len: int = param(1_000, "Length at which the cosine ends, in tokens.", min=1, max=1_000_000)
    min_value_wrong: float = param(-1.0, "Score of the shortest wrong completion.", min=-1_000.0, max=1_000.0)
    max_value_wrong: float = param(-0.5, "Score of the longest wrong completion.", min=-1_000.0, max=1_000.0)
    min_value_correct: float = param(0.5, "Score of the longest right completion.", min=-1_000.0, max=1_000.0)
    max_value_correct: float = param(1.0, "Score of the shortest right completion.", min=-1_000.0, max=1_000.0)


@dataclass(frozen=True)
class RepetitionParams(Params):
    ngram_size: int = param(3, "Number of tokens in an n-gram.", min=1, max=100)
    max_penalty: float = param(-1.0, "Score of a text that only repeats itself.", min=-1_000.0, max=0.0)


@dataclass(frozen=True)
class SoftOverlongParams(Params):
    max_completion_len: int = param(1_024, "Length beyond which the score is -1, in tokens.", min=1, max=10_000_000)
    soft_punish_cache: int = param(
        256, "Number of tokens before that length over which the score falls.", min=0, max=10_000_000
    )

    def problem(self) -> str | None:
        fits = self.soft_punish_cache <= self.max_completion_len
        return None if fits else "soft_punish_cache: must not be above max_completion_len"


def _cosine_range(params: Any) -> tuple[float, float]:
    ends = (params.min_value_wrong, params.max_value_wrong, params.min_value_correct, params.max_value_correct)
    return min(ends), max(ends)


def accuracy(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 1 if math-verify finds the completion's formula equal to the row's solution (or answer), or 0 if it
    differs or there is no LaTeX. Return None if the row's solution isn't a formula."""
    return _by_trl("trl_accuracy", completions, rows, params, tools)


def reasoning_accuracy(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 1 if the text after the last `delimiter` is right by `accuracy`, else 0. Without a delimiter, the score
    is 0, whatever the text contains."""
    return _by_trl("trl_reasoning_accuracy", completions, rows, params, tools)


def cosine_scaled(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return -1 to 1, TRL's accuracy scaled by a cosine of the length. With the default parameters, a right completion
    scores from 1 if short down to 0.5 at `max_len` tokens, and a wrong one from -1 if short up to -0.5. Use this
    against reasoning that grows longer without getting better (arXiv:2502.03373)."""
    return _by_trl("trl_cosine_scaled", completions, rows, params, tools)


def think_format(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 1 if the completion begins with <think>, which is closed and is the only one, else 0 (also if the chat
    template wrote the opening tag)."""
    return _by_trl("trl_think_format", completions, rows, params, tools)


def repetition_penalty(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return `max_penalty` (-1) times the share of n-grams of tokens that are repeated, or 0 if there are fewer tokens
    than `ngram_size`. Use this against completions that repeat the same words."""
    return _by_trl("trl_repetition_penalty", completions, rows, params, tools)


def soft_overlong(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 0 up to `max_completion_len` - `soft_punish_cache` tokens, and above that a score that falls linearly to
    -1 at `max_completion_len` and beyond. Use this if completions reach their maximum length (DAPO,
    arXiv:2503.14476)."""
    return _by_trl("trl_soft_overlong", completions, rows, params, tools)


def _by_trl(key: str, completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    ask = tools.trainer.get(key)
    if ask is None:
        raise Unavailable("Only the trainer can score with TRL's own rewards.")
    scores = ask(completions, rows, params)
    assert isinstance(scores, Scores)  # noqa: S101  what the trainer's own module returns
    return scores


def _reward(key: str, batch: BatchFunction, **details: Any) -> Reward:
    return Reward(key=key, batch=batch, cost=Cost.TRAINER, **details)


_TRAINER_ONLY = "Only the trainer can score it."
_ANSWER = {"answer": r"\frac{1}{3}"}

REWARDS = (
    _reward(
        "trl_accuracy",
        accuracy,
        title="TRL: accuracy",
        help="1 if math-verify finds the mathematical answer equal to the row's solution (or answer).",
        params=NoParams,
        needs=("answer",),
        low="A different answer, or none that can be parsed.",
        high="An equal answer.",
        use="To compare with published results that used it. This library's “Math equivalence” does the same in the "
        "sandbox, where no expression can block the trainer.",
        examples=(Example(r"It is \boxed{\frac{1}{3}}.", None, _ANSWER, why=_TRAINER_ONLY),),
    ),
    _reward(
        "trl_reasoning_accuracy",
        reasoning_accuracy,
        title="TRL: accuracy after reasoning",
        help="TRL's accuracy of the text after the reasoning; 0 if the reasoning doesn't end.",
        params=ReasoningParams,
        needs=("answer",),
        low="A different answer, none, or reasoning without an end.",
        high="An equal answer after the reasoning.",
        use="For models that reason in tags, if an answer inside the reasoning must not be rewarded.",
        examples=(Example(r"<think>…</think>\boxed{\frac{1}{3}}", None, _ANSWER, why=_TRAINER_ONLY),),
    ),
    _reward(
        "trl_cosine_scaled",
        cosine_scaled,
        title="TRL: accuracy scaled by length",
        help="TRL's accuracy scaled by a cosine of the length: highest for short right answers, lowest for short wrong "
        "ones.",
        params=CosineParams,
        range=(-1.0, 1.0),
        range_of=_cosine_range,
        needs=("answer",),
        low="A short wrong completion.",
        high="A short right completion.",
        use="Against reasoning that grows longer without getting better.",
        examples=(Example(r"It is \boxed{\frac{1}{3}}.", None, _ANSWER, why=_TRAINER_ONLY),),
    ),
    _reward(
        "trl_think_format",
        think_format,
        title="TRL: think format",
        help="1 if the completion begins with one <think>…</think>.",
        params=NoParams,
        low="The completion doesn't begin with the tag, or the tag isn't closed.",
        high="The completion begins with one block of reasoning.",
        use="To compare with published results that used it. This library's “Think block, strict” checks more.",
        examples=(Example("<think>a</think>b", None, why=_TRAINER_ONLY),),
    ),
    _reward(
        "trl_repetition_penalty",
        repetition_penalty,
        title="TRL: repetition penalty",
        help="Share of repeated n-grams of tokens, multiplied by the maximum penalty.",
        params=RepetitionParams,
        range=(-1.0, 0.0),
        range_of=lambda params: (params.max_penalty, 0.0),
        low="The completion keeps repeating one n-gram.",
        high="No n-gram occurs twice.",
        use="Against completions that fill their length with the same words.",
        examples=(Example("no no no no no", None, why=_TRAINER_ONLY),),
    ),
    _reward(
        "trl_soft_overlong",
        soft_overlong,
        title="TRL: soft overlong punishment",
        help="0 up to a length in tokens, then falling to -1 (DAPO).",
        params=SoftOverlongParams,
        range=(-1.0, 0.0),
        low="Longer than the maximum.",
        high="Short enough.",
        use="If completions reach max_completion_length. Set the maximum to that value.",
        examples=(Example("A short text.", None, why=_TRAINER_ONLY),),
    ),
)
