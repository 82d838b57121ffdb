"""Scores of an answer by the run's own rewards."""

from typing import Any

from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.turns import TrialTurn as ScoringTurn
from runs.engine.served.models import Answer
from runs.engine.spec import spec_of
from runs.insight.scoring import rows
from runs.insight.scoring.evaluating import column
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Row

SECONDS = 15.0
NEEDS_COLUMNS = "needs columns of a dataset row ({}): use a prompt from the dataset"


def score(answer: Answer) -> None:
    turn = answer.turn
    stored_row = None if turn.row is None else rows.of_run(turn.run, [turn.row]).rows.get(turn.row)
    row = stored_row or {"row": 0, "prompt": turn.prompt, "answer": "", "test_cases": []}
    completion, scoring_turn = Completion(answer.text, tokens=answer.tokens), turns.turn(SECONDS)
    specs = spec_of(turn.run).rewards
    answer.scores = [
        _score_component(spec, completion, row, scoring_turn, of_dataset=stored_row is not None) for spec in specs
    ]
    answer.save(update_fields=["scores"])


def _score_component(
    spec: RewardSpec, completion: Completion, row: Row, scoring_turn: ScoringTurn, *, of_dataset: bool
) -> dict[str, Any]:
    reward = LIBRARY.get(spec.function)
    if reward is None:
        return _score(spec, None, "This reward is no longer in the library.")
    if reward.needs and not of_dataset:
        return _score(spec, None, NEEDS_COLUMNS.format(", ".join(reward.needs).replace("_", " ")))
    scores = column(spec, [completion], [row], scoring_turn)
    if scores.why:
        return _score(spec, None, scores.why)
    note = next((note for note in scores.notes if note), "")
    failure_message = next((failure.message for failure in scores.failures), "")
    value = scores.values[0] if scores.values else None
    return _score(spec, value, failure_message or note or ("" if value is not None else "It doesn't apply."))


def _score(spec: RewardSpec, value: float | None, note: str) -> dict[str, Any]:
    return {"name": spec.name, "value": value, "note": note}
