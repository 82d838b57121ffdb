"""What the canary's scores say about the weights in vLLM, once the effect of rounding is separated from them.

Standard library only.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from workers.contract.reports.metric_names import LOGP_GAP, POLICY_CHANGE, VLLM_CHANGED, VLLM_FOLLOWED

CLEAR_CHANGE = 4.0
"""Change of the policy, as a multiple of the rounding, from which the slope is known: if only the trainer rounds, a
slope of 1 still appears as 0.94, and as 0.92 if the rounding has grown by half since the first batch."""
MAX_ERROR = 0.04
"""Standard error of a slope that is known."""
LEAST_CHANGE = 1e-5
"""Root mean square of the policy's change, in nats per token, below which vLLM may show nothing of it: so much does the
order of additions in float32 change alone."""
LEAST_OF_ROUNDING = 0.25
"""The same as a multiple of the rounding, since vLLM's weights have fewer digits than the trainer's."""
SPAN = 4
"""Number of syncs over which changes are compared, if they are clear; otherwise it is as many as needed."""
MAX_KEPT = 200
"""Maximum number of scorings that are kept, besides the first."""

Logps = list[float]


class Scoring(NamedTuple):
    """The log-probabilities of the same tokens by the trainer and by each engine, after one sync."""

    trainer: Logps
    engines: list[Logps]


class SyncFigures:
    """The figures of a run's syncs, each compared with earlier ones of the same attempt."""

    def __init__(self) -> None:
        self._kept: list[Scoring] = []

    def add(self, now: Scoring) -> dict[str, float]:
        """Return the metrics of a scoring. Of several engines, each figure is that of the worst.

        LOGP_GAP is the mean absolute difference between vLLM's log-probabilities and the trainer's, in nats per token.
        POLICY_CHANGE is the mean absolute change of the trainer's since the first batch, and VLLM_CHANGED the share of
        tokens for which vLLM's has changed at all since the previous sync; it is omitted if the trainer's haven't.
        VLLM_FOLLOWED is the share of the policy's change that vLLM shows. It is 0 if vLLM's scores have stayed exactly
        the same while the trainer's changed by more than rounding. Otherwise it is the slope of vLLM's changes on the
        trainer's, and omitted while that isn't known: in bfloat16 any update, however small, moves each side by about
        as much, and independently (0.04 nats per token for a 135M model on an H200).
        """
        self._kept.append(now)
        if len(self._kept) > MAX_KEPT:
            del self._kept[1]
        first, previous = self._kept[0], self._kept[max(0, len(self._kept) - 2)]
        has_moved = now.trainer != previous.trainer
        metrics = {
            LOGP_GAP: max(_mean_distance(scores, now.trainer) for scores in now.engines),
            POLICY_CHANGE: _mean_distance(now.trainer, first.trainer),
        }
        if not has_moved:
            return metrics
        moved = [_moved_share(*pair) for pair in zip(previous.engines, now.engines, strict=True)]
        shares = [self._followed(engine) if share else self._stood_still(engine) for engine, share in enumerate(moved)]
        metrics[VLLM_CHANGED] = min(moved)
        if known_shares := [share for share in shares if share is not None]:
            metrics[VLLM_FOLLOWED] = min(known_shares)
        return metrics

    def _stood_still(self, engine: int) -> float | None:
        """Return 0 if the policy has changed by more than rounding since the engine's scores last did, or None."""
        now, since = self._kept[-1], self._kept[-1]
        for earlier in reversed(self._kept):
            if earlier.engines[engine] != now.engines[engine]:
                break
            since = earlier
        min_change = max(LEAST_CHANGE**2 * len(now.trainer), LEAST_OF_ROUNDING**2 * self._rounding(engine))
        return 0.0 if _squares(_changes(since.trainer, now.trainer)) >= min_change else None

    def _rounding(self, engine: int) -> float:
        return _squares(_changes(self._kept[0].trainer, self._kept[0].engines[engine]))

    def _followed(self, engine: int) -> float | None:
        """Return the slope since SPAN syncs ago, or since the newest earlier sync from which it is known, or None."""
        now, rounding = self._kept[-1], self._rounding(engine)
        for since in reversed(self._kept[: max(1, len(self._kept) - SPAN)]):
            changes = _changes(since.trainer, now.trainer)
            slope = _slope(changes, _changes(since.engines[engine], now.engines[engine]), rounding)
            if slope is not None:
                return slope
        return None


def _slope(changes: Logps, moves: Logps, rounding: float) -> float | None:
    """Return the slope of vLLM's moves on the trainer's changes without the part of the changes that is rounding, or
    None if it isn't known. `rounding`: the sum of the squared gaps at first, about as large as the rounding's part."""
    squares = _squares(changes)
    if not squares or squares < CLEAR_CHANGE**2 * rounding:
        return None
    true = squares - rounding
    slope = sum(move * change for move, change in zip(moves, changes, strict=True)) / true
    residuals = [change * (move - slope * change) for move, change in zip(moves, changes, strict=True)]
    return slope if _squares(residuals) <= (MAX_ERROR * true) ** 2 else None


def _changes(before: Logps, after: Logps) -> Logps:
    return [new - old for old, new in zip(before, after, strict=True)]


def _squares(values: Iterable[float]) -> float:
    return sum(value * value for value in values)


def _mean_distance(first_values: Sequence[float], other_values: Sequence[float]) -> float:
    return (
        sum(abs(a - b) for a, b in zip(first_values, other_values, strict=True)) / len(first_values)
        if first_values
        else 0.0
    )


def _moved_share(before: Logps, after: Logps) -> float:
    return sum(logp_before != logp_after for logp_before, logp_after in zip(before, after, strict=True)) / max(
        len(after), 1
    )


def joined(scores: Iterable[Iterable[float]]) -> Logps:
    """Return the scores of all sequences as one list."""
    return list(itertools.chain.from_iterable(scores))
