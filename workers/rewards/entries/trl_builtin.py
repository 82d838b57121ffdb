"""TRL's own rewards. They need TRL, and some need token ids, so only the trainer scores with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.rewards.parameters import Params, param
from workers.rewards.reward import BatchFunction, Completion, Cost, Example, Reward, Row, Scores
from workers.rewards.tools import Tools, Unavailable


@dataclass(frozen=True)
class NoParams(Params):
    """No parameters."""


@dataclass(frozen=True)
class ReasoningParams(Params):
    delimiter: str = param(
        "</think>",
        "The end of the reasoning; the answer comes after it.",
        rule=lambda text: not text and "must not be empty",
    )


@dataclass(frozen=True)
class CosineParams(Params):
    max_len: int = param(1_000, "Tokens at which the cosine ends.", min=1, max=1_000_000)
    min_value_wrong: float = param(-1.0, "Score of the shortest wrong completion.", min=-1_000.0, max=1_000.0)
    max_value_wrong: float = param(-0.5, "Score of the longest wrong completion.", min=-1_000.0, max=1_000.0)
    min_value_correct: float = param(0.5, "Score of the longest right completion.", min=-1_000.0, max=1_000.0)
    max_value_correct: float = param(1.0, "Score of the shortest right completion.", min=-1_000.0, max=1_000.0)


@dataclass(frozen=True)
class RepetitionParams(Params):
    ngram_size: int = param(3, "Tokens of an n-gram.", min=1, max=100)
    max_penalty: float = param(-1.0, "Score of a text that only repeats itself.", min=-1_000.0, max=0.0)


@dataclass(frozen=True)
class SoftOverlongParams(Params):
    max_completion_len: int = param(1_024, "Tokens beyond which the score is -1.", min=1, max=10_000_000)
    soft_punish_cache: int = param(256, "The score falls over this many tokens before it.", min=0, max=10_000_000)

    def problem(self) -> str | None:
        fits = self.soft_punish_cache <= self.max_completion_len
        return None if fits else "soft_punish_cache: must not be above max_completion_len"


def _cosine_range(params: Any) -> tuple[float, float]:
    ends = (params.min_value_wrong, params.max_value_wrong, params.min_value_correct, params.max_value_correct)
    return min(ends), max(ends)


def accuracy(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 0 or 1. 1: math-verify finds the completion's formula equal to the row's solution (or answer). 0: another
    one, or none in LaTeX. Rows whose solution isn't a formula don't count. To compare with results of others that used
    it; `math_equivalent` does the same in the sandbox."""
    return _by_trl("trl_accuracy", completions, rows, params, tools)


def reasoning_accuracy(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 0 or 1. 1: as `accuracy`, of what follows the last `delimiter`. 0: another answer after it, none, or no
    delimiter at all, whatever stands before. For models that think in tags, where an answer inside the thought must not
    count."""
    return _by_trl("trl_reasoning_accuracy", completions, rows, params, tools)


def cosine_scaled(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return -1 to 1, as its four values say. 1: right and short, falling to 0.5 at `max_len` tokens and beyond. -1:
    wrong and short, rising to -0.5: a wrong completion may try longer. It never gives a score between -0.5 and 0.5.
    Against reasoning that grows without getting better (arXiv:2502.03373)."""
    return _by_trl("trl_cosine_scaled", completions, rows, params, tools)


def think_format(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return 0 or 1. 1: the completion's first characters are <think>, it is closed, and no other opens. 0: anything
    else, an opening tag that the chat template has written included. To compare with results of others; `think_tags`
    says more."""
    return _by_trl("trl_think_format", completions, rows, params, tools)


def repetition_penalty(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return `max_penalty` (-1) to 0. 0: no n-gram of tokens comes twice, or there are fewer tokens than `ngram_size`.
    Near -1: one n-gram is repeated all the time. Against completions that fill their length with the same words."""
    return _by_trl("trl_repetition_penalty", completions, rows, params, tools)


def soft_overlong(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return -1 to 0. 0: up to `max_completion_len` less `soft_punish_cache` tokens, then falling evenly. -1: at
    `max_completion_len` and beyond. Where completions run into their longest length (DAPO, arXiv:2503.14476)."""
    return _by_trl("trl_soft_overlong", completions, rows, params, tools)


def _by_trl(key: str, completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    ask = tools.trainer.get(key)
    if ask is None:
        raise Unavailable("TRL's own rewards are computed by the trainer only.")
    scores = ask(completions, rows, params)
    assert isinstance(scores, Scores)  # noqa: S101  what the trainer's own module returns
    return scores


def _reward(key: str, batch: BatchFunction, **details: Any) -> Reward:
    return Reward(key=key, batch=batch, cost=Cost.TRAINER, **details)


_WHY = "Scored by the trainer only."
_ANSWER = {"answer": r"\frac{1}{3}"}

REWARDS = (
    _reward(
        "trl_accuracy",
        accuracy,
        title="TRL: accuracy",
        help="1 when the mathematical answer equals the row's solution (or answer), by math-verify.",
        params=NoParams,
        needs=("answer",),
        low="Another answer, or none that can be read.",
        high="An equal answer.",
        use="To compare with results of others that used it. Mathematical equivalence of this library does the same in "
        "the sandbox, where no expression can block the trainer.",
        examples=(Example(r"It is \boxed{\frac{1}{3}}.", None, _ANSWER, why=_WHY),),
    ),
    _reward(
        "trl_reasoning_accuracy",
        reasoning_accuracy,
        title="TRL: accuracy after reasoning",
        help="As TRL's accuracy, of what follows the end of the reasoning; 0 where the reasoning has no end.",
        params=ReasoningParams,
        needs=("answer",),
        low="Another answer, none, or reasoning without an end.",
        high="An equal answer after the reasoning.",
        use="For models that think in tags, where an answer inside the reasoning must not count.",
        examples=(Example(r"<think>…</think>\boxed{\frac{1}{3}}", None, _ANSWER, why=_WHY),),
    ),
    _reward(
        "trl_cosine_scaled",
        cosine_scaled,
        title="TRL: accuracy scaled by length",
        help="TRL's accuracy on a cosine of the length: short right answers best, short wrong ones worst.",
        params=CosineParams,
        range=(-1.0, 1.0),
        range_of=_cosine_range,
        needs=("answer",),
        low="A short wrong completion.",
        high="A short right completion.",
        use="Against reasoning that grows without getting better.",
        examples=(Example(r"It is \boxed{\frac{1}{3}}.", None, _ANSWER, why=_WHY),),
    ),
    _reward(
        "trl_think_format",
        think_format,
        title="TRL: think format",
        help="1 when the completion begins with one <think>…</think>.",
        params=NoParams,
        low="It doesn't begin with the tag, or the tag isn't closed.",
        high="It begins with one block of reasoning.",
        use="To compare with results of others that used it; this library's think_tags says more.",
        examples=(Example("<think>a</think>b", None, why=_WHY),),
    ),
    _reward(
        "trl_repetition_penalty",
        repetition_penalty,
        title="TRL: repetition penalty",
        help="The share of repeated n-grams of tokens, times the largest penalty.",
        params=RepetitionParams,
        range=(-1.0, 0.0),
        range_of=lambda params: (params.max_penalty, 0.0),
        low="It repeats one n-gram all the time.",
        high="No n-gram comes twice.",
        use="Against completions that fill their length with the same words.",
        examples=(Example("no no no no no", None, why=_WHY),),
    ),
    _reward(
        "trl_soft_overlong",
        soft_overlong,
        title="TRL: soft over-long punishment",
        help="0 up to a length in tokens, then falling to -1 (DAPO).",
        params=SoftOverlongParams,
        range=(-1.0, 0.0),
        low="Longer than the maximum.",
        high="Short enough.",
        use="Where completions run into max_completion_length: set the maximum to it.",
        examples=(Example("A short text.", None, why=_WHY),),
    ),
)
