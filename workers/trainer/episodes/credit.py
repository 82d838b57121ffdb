"""Credit per turn: the advantage of each token from the outcome of its episode and from the reward of its turn.

    A[i, t] = A_outcome[i] + turn_advantage_coef * A_turn[i, k]    for each token t of turn k of episode i
    A_turn[i, k] = (r[i, k] - mean_k) / (std_k + 1e-4)

where mean_k and std_k are the mean and standard deviation of turn k's rewards over the members of the group that have a
scored turn k. This is
MT-GRPO (Zeng et al. 2025, "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment",
arXiv:2505.11821), whose authors' trainer computes `outcome + turn_advantage_coef * turn * before_result_mask` for one
rewarded turn; here each turn has its own term. The divisor is TRL's: with scale_rewards "batch" the standard deviation
of turn k over the whole batch, with "none" nothing, and with normalize_then_sum each component is normalised
separately, as in the outcome.

A turn without a score, or without another turn to compare with, adds 0: its tokens get the outcome's advantage. So do
tokens that the model didn't generate, which don't enter the loss.
"""

from collections.abc import Sequence
from typing import Any

from workers.rewards import advantages

Span = tuple[int, int]
"""(start, stop) of a turn's own tokens within the completion."""
TurnScores = Sequence[Sequence[float | None]]
"""One component's scores[completion][turn], None or NaN where missing; completions may have different numbers of
turns."""


def turn_advantages(
    values: Sequence[TurnScores],
    weights: Sequence[float],
    group: int,
    aggregation: str = "sum_then_normalize",
    scale: str | bool = "group",
) -> list[list[float]]:
    """Return A_turn[completion][turn] for a batch of whole groups. `values`: one item per component."""
    turns = _turn_counts(values)
    result = [[0.0] * count for count in turns]
    for number in range(max(turns, default=0)):
        columns = [[_valid_score(scores, number) for scores in component] for component in values]
        column = advantages.advantages(columns, weights, group, aggregation, scale).advantages
        for index, advantage in enumerate(column):
            if number < turns[index]:
                result[index][number] = advantage
    return result


def turn_rewards(values: Sequence[TurnScores], weights: Sequence[float]) -> list[list[float | None]]:
    """Return the weighted sum of the components' scores, as rewards[completion][turn]."""
    turns = _turn_counts(values)
    columns = [
        advantages.totals([[_valid_score(scores, number) for scores in component] for component in values], weights)
        for number in range(max(turns, default=0))
    ]
    return [[columns[number][index] for number in range(count)] for index, count in enumerate(turns)]


def per_token(
    outcomes: Sequence[float],
    turns: Sequence[Sequence[float]],
    spans: Sequence[Sequence[Span]],
    coef: float,
    width: int,
) -> list[list[float]]:
    """Return A[completion][token] with `width` tokens each. `turns`: A_turn. `spans`: the tokens of each turn."""
    result = [[outcome] * width for outcome in outcomes]
    for tokens, turn_values, turn_spans in zip(result, turns, spans, strict=True):
        for advantage, (start, stop) in zip(turn_values, turn_spans, strict=True):
            tokens[start:stop] = [token + coef * advantage for token in tokens[start:stop]]
    return result


def spans(completion: Any, length: int) -> list[Span]:
    """Return the spans of the turns of a completion with `length` tokens, by the token counts of its messages; one span
    for all if there are no counts."""
    if isinstance(completion, str) or any("tokens" not in message for message in completion):
        return [(0, length)]
    result, start = [], 0
    for message in completion:
        stop = start + message["tokens"]
        if message["role"] == "assistant":
            result.append((min(start, length), min(stop, length)))
        start = stop
    return result or [(0, length)]


def annotate(completion: Any, rewards: Sequence[float | None], turn_advantages: Sequence[float]) -> None:
    """Add the rewards and advantages of a completion's turns to the model's messages."""
    messages = () if isinstance(completion, str) else completion
    own_messages = [message for message in messages if message.get("role") == "assistant"]
    for message, reward, advantage in zip(own_messages, rewards, turn_advantages, strict=False):
        message |= {"reward": reward, "advantage": advantage}


def _turn_counts(values: Sequence[TurnScores]) -> list[int]:
    return [max(map(len, scores)) for scores in zip(*values, strict=True)]


def _valid_score(scores: Sequence[float | None], number: int) -> float | None:
    score = scores[number] if number < len(scores) else None
    return None if score is None or score != score else score
