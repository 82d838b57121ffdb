"""Scoring completions with a config's components, for the playground and replays."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

from controlplane.catalogue.rewards import scored
from controlplane.catalogue.rewards.turns import TrialTurn
from controlplane.platform.confined.limits import NotFinished
from runs.insight.scoring.rows import NamedRow
from workers.contract.run import row_names
from workers.contract.run.spec import RewardSpec
from workers.rewards.advantages import mean
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Failure, Reward, Row, Scores, turns_of

TIMEOUT_PARAMS = {Cost.HTTP: ("timeout_s", "batch_s"), Cost.SANDBOX: ("seconds",)}
"""Parameters with time limits in seconds, for requests to servers and for running code."""
ONLY_TRAINER = "Only the trainer can compute this component, because it depends on the running model."
ASKS_MESSAGE = "This component calls another server, so it is computed only on request."


class ScoreSource(StrEnum):
    """The source of a component's scores, or why it has none."""

    SCORED = "scored"
    RECORDED = "recorded"
    TRAINER = "trainer"
    ASKS = "asks"
    UNAVAILABLE = "unavailable"
    LATE = "late"


@dataclass(frozen=True)
class ComponentScores:
    spec: RewardSpec
    reward: Reward
    values: list[float | None]
    """One score per completion; None if the component doesn't apply, failed or was not computed."""
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None
    how: ScoreSource = ScoreSource.SCORED
    why: str = ""

    @property
    def counts(self) -> bool:
        return self.how in (ScoreSource.SCORED, ScoreSource.RECORDED)


def column(
    spec: RewardSpec,
    completions: Sequence[Completion],
    rows: Sequence[Row],
    turn: TrialTurn,
    *,
    ask: bool = False,
    recorded: list[float | None] | None = None,
) -> ComponentScores:
    """Score completions with one component, where rows[i] belongs to completions[i].

    `ask` allows rewards that call other servers. `recorded` are the run's scores, if it can't score here. Completions
    of rows to which the component doesn't apply have no score, as in a run.
    """
    applied = [index for index, row in enumerate(rows) if applies(spec, row)]
    if len(applied) == len(completions):
        return _column(spec, completions, rows, turn, ask=ask, recorded=recorded)
    note = f"It applies only to {row_names.rows_of(spec.applies_to)}."
    nothing = ComponentScores(spec, LIBRARY[spec.function], [None] * len(completions), notes=[note] * len(completions))
    if not applied:
        return replace(nothing, seconds=0.0)
    recorded = None if recorded is None else [recorded[index] for index in applied]
    scored_rows = [rows[index] for index in applied]
    column_of_applied = _column(
        spec, [completions[index] for index in applied], scored_rows, turn, ask=ask, recorded=recorded
    )
    return _spread(column_of_applied, applied, nothing)


def applies(spec: RewardSpec, row: Row) -> bool:
    """Return whether a component applies to a row, which any does to a row that is made up."""
    return not isinstance(row, NamedRow) or row_names.applies(spec, row.names)


def _spread(scores: ComponentScores, applied: Sequence[int], nothing: ComponentScores) -> ComponentScores:
    """Put the scores of some completions in their places among all. `nothing`: the column of those without scores."""
    values, notes = list(nothing.values), list(nothing.notes)
    for position, index in enumerate(applied):
        values[index] = scores.values[position]
        notes[index] = scores.notes[position] if position < len(scores.notes) else ""
    failures = [replace(failure, index=applied[failure.index]) for failure in scores.failures]
    return replace(scores, values=values, notes=notes, failures=failures)


def _column(
    spec: RewardSpec,
    completions: Sequence[Completion],
    rows: Sequence[Row],
    turn: TrialTurn,
    *,
    ask: bool,
    recorded: list[float | None] | None,
) -> ComponentScores:
    reward = LIBRARY[spec.function]
    unscored = partial(ComponentScores, spec, reward, [None] * len(completions))
    if reward.cost is Cost.TRAINER or (reward.cost is Cost.HTTP and not ask):
        if recorded is not None:
            return ComponentScores(spec, reward, recorded, how=ScoreSource.RECORDED)
        if reward.cost is Cost.TRAINER:
            return unscored(how=ScoreSource.TRAINER, why=ONLY_TRAINER)
        return unscored(how=ScoreSource.ASKS, why=ASKS_MESSAGE)
    if not completions:
        return ComponentScores(spec, reward, [], seconds=0.0)
    turn.late, turn.unavailable = False, ""
    started, params = time.perf_counter(), _params(reward, spec, turn)
    try:
        scores = _scores(spec, reward, completions, rows, params, turn)
    except NotFinished as error:
        return unscored(seconds=time.perf_counter() - started, how=ScoreSource.LATE, why=str(error))
    seconds = time.perf_counter() - started
    if scores.failures and turn.over and _had_less_time(reward, spec, params):
        turn.late = True
    if turn.unavailable:
        return unscored(how=ScoreSource.UNAVAILABLE, why=turn.unavailable)
    messages = [failure.message for failure in scores.failures if failure.kind == "unavailable"]
    if reward.cost is Cost.PURE and messages and len(messages) == len(scores.failures):
        return unscored(how=ScoreSource.UNAVAILABLE, why=messages[0])
    if turn.late:
        return unscored(seconds=seconds, how=ScoreSource.LATE, why="Scoring timed out.")
    return ComponentScores(spec, reward, scores.values, scores.failures, scores.notes, seconds)


def _scores(
    spec: RewardSpec,
    reward: Reward,
    completions: Sequence[Completion],
    rows: Sequence[Row],
    params: dict[str, Any],
    turn: TrialTurn,
) -> Scores:
    """Score whole completions, or average the scores of each completion's turns, as the run's chart does."""
    if not spec.per_turn:
        return scored.scores(reward, completions, rows, params, turn)
    split_up = list(map(turns_of, completions))
    owners = [index for index, turns in enumerate(split_up) for _ in turns]
    all_turns = [part for turns in split_up for part in turns]
    scores = scored.scores(reward, all_turns, [rows[index] for index in owners], params, turn)
    by_owner: list[list[float | None]] = [[] for _ in split_up]
    for index, value in zip(owners, scores.values, strict=True):
        by_owner[index].append(value)
    failures = {
        owners[failure.index]: replace(failure, index=owners[failure.index]) for failure in reversed(scores.failures)
    }
    notes = dict(zip(owners, scores.notes, strict=False))
    return Scores(
        list(map(mean, by_owner)),
        [failures[i] for i in sorted(failures)],
        [notes.get(i, "") for i in range(len(split_up))],
    )


def _params(reward: Reward, spec: RewardSpec, turn: TrialTurn) -> dict[str, Any]:
    """Return the component's parameters with time limits capped at the page's remaining time."""
    timeouts = TIMEOUT_PARAMS.get(reward.cost)
    if timeouts is None:
        return dict(spec.params)
    remaining = max(1.0, turn.until - time.monotonic())
    all_params = reward.defaults() | spec.params
    return all_params | {name: min(all_params[name], remaining) for name in timeouts if name in all_params}


def _had_less_time(reward: Reward, spec: RewardSpec, params: dict[str, Any]) -> bool:
    """Return whether code had less time than its own limit, so that failures may be due to the page."""
    all_params = reward.defaults() | spec.params
    return reward.cost is Cost.SANDBOX and any(
        params.get(name) != all_params.get(name) for name in TIMEOUT_PARAMS[Cost.SANDBOX]
    )
