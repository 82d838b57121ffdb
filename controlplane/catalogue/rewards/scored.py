"""The entry point to scoring, which happens in child processes."""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.given import Given, given_for
from controlplane.catalogue.rewards.turns import TrialTurn
from controlplane.platform.confined.limits import MAX_SECONDS, NotFinished
from controlplane.platform.confined.pool import ChildPool
from controlplane.platform.confined.tasks import SECONDS, ConfinedTask
from workers.rewards.entries import custom
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Reward, Row, Scores
from workers.rewards.scoring import score

GRACE_S = 5.0
"""Time after a turn's deadline in which running code ends by its own limits."""
SCORING = ChildPool(turns.MAX_SLICES)
ASKING_POOL = ChildPool(4)
"""Children for rewards that call servers and wait for them, so that other rewards needn't wait, too."""


@dataclass(frozen=True)
class TurnScores:
    """A reward's scores, and how the turn that computed them ended."""

    scores: Scores
    late: bool = False
    unavailable: str = ""


@dataclass(frozen=True)
class ScoredBatch:
    """Completions with their distinct rows; completions of one group share a row."""

    completions: list[Completion]
    rows: list[Row]
    row_of: list[int]
    """Index of each completion's row."""


def scores(
    reward: Reward, completions: Sequence[Completion], rows: Sequence[Row], params: Mapping[str, Any], turn: TrialTurn
) -> Scores:
    """Score completions during a turn, where rows[i] belongs to completions[i], and set the turn's `late` and
    `unavailable`. Raises NotFinished if scoring can't begin, exceeds a limit or is no longer wanted."""
    seconds = min(max(0.0, turn.until - time.monotonic()), MAX_SECONDS - GRACE_S)
    limit = SECONDS if reward.cost is Cost.PURE else seconds + GRACE_S
    task = (_ASK if reward.cost is Cost.HTTP else _SCORE).within(limit, turn.is_wanted)
    try:
        result = task(reward.key, _batch(completions, rows), dict(params), given_for([(reward, params)]), seconds)
    except NotFinished:
        turn.late = True
        raise
    turn.late, turn.unavailable = turn.late or result.late, result.unavailable
    return result.scores


def trial(source: str, samples: Sequence[tuple[Completion, Row]], seconds: float) -> custom.CodeTrial:
    """Try custom code on samples for up to `seconds`. Problems, including a time limit, are in the result."""
    completions, rows = [completion for completion, _ in samples], [row for _, row in samples]
    try:
        return _TRIAL.within(seconds)(source, _batch(completions, rows), seconds)
    except NotFinished as error:
        return custom.CodeTrial(Scores([None] * len(samples)), str(error))


def score_batch(key: str, batch: ScoredBatch, params: dict[str, Any], given: Given, seconds: float) -> TurnScores:
    turn = given.turn(seconds)
    rows = [batch.rows[index] for index in batch.row_of]
    result = score(LIBRARY[key], batch.completions, rows, params, turn.tools)
    return TurnScores(result, turn.late, turn.unavailable)


def try_code(source: str, batch: ScoredBatch, seconds: float) -> custom.CodeTrial:
    turn = Given().turn(seconds)
    samples = [(text, batch.rows[index]) for text, index in zip(batch.completions, batch.row_of, strict=True)]
    return custom.trial(source, samples, turn.tools, seconds=seconds / 2)


def _batch(completions: Sequence[Completion], rows: Sequence[Row]) -> ScoredBatch:
    """Build a batch with each row once, even if several successive completions share it."""
    starts = [index == 0 or row is not rows[index - 1] for index, row in enumerate(rows)]
    distinct = [row for row, is_start in zip(rows, starts, strict=True) if is_start]
    return ScoredBatch(list(completions), distinct, [number - 1 for number in itertools.accumulate(starts)])


_SCORE = ConfinedTask(score_batch, "Scoring", pool=SCORING)
_ASK = ConfinedTask(score_batch, "Scoring", pool=ASKING_POOL)
_TRIAL = ConfinedTask(try_code, "Trying this code", pool=SCORING)
