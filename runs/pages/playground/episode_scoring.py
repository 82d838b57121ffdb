"""Scores of an episode in the playground by a reward config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.catalogue.rewards.turns import TrialTurn
from controlplane.platform.http.request_body import field_value
from runs.insight.scoring.evaluating import applies, column
from runs.pages.playground.episode_play import MAX_BYTES, utf8_safe
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.advantages import mean, totals
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Row, turns_of

GONE = "This reward is no longer in the library."
NEEDS_COLUMNS = "It needs these columns of a dataset row: {}."


@dataclass(frozen=True)
class ComponentScore:
    spec: RewardSpec
    value: float | None
    """The score, or the mean if the component scores each turn."""
    turns: list[float | None] = field(default_factory=list)
    note: str = ""
    failed: bool = False
    in_total: bool = True


@dataclass(frozen=True)
class EpisodeScores:
    components: list[ComponentScore]
    total: float | None
    """The weighted sum, or None if no component applies."""

    @property
    def apart(self) -> bool:
        """True if some turn scores aren't part of the total."""
        return any(component.turns and not component.in_total for component in self.components)

    @property
    def turns(self) -> list[float | None]:
        """The reward of each turn, or empty if no component scores turns."""
        per_turn = [component for component in self.components if component.turns]
        return (
            totals([component.turns for component in per_turn], [component.spec.weight for component in per_turn])
            if per_turn
            else []
        )


def read(messages_json: str) -> list[dict[str, Any]]:
    """Parse the messages that a page sends back. Raises ValueError if they are too long, aren't messages or hold no
    turn."""
    if len(messages_json) > 10 * MAX_BYTES:
        raise ValueError("The episode is too long to score here.")
    try:
        messages = utf8_safe(field_value(messages_json or "[]"))
    except (ValueError, RecursionError):
        messages = None
    return check_messages(messages)


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """Check parsed messages and return them. Raises ValueError if they aren't messages or hold no turn."""
    is_chat = isinstance(messages, list) and all(isinstance(item, dict) and "role" in item for item in messages)
    if not is_chat or not any(message["role"] == "assistant" for message in messages):
        raise ValueError("There is no turn to score yet. Play a turn first.")
    return messages  # type: ignore[no-any-return]


def score(
    specs: Sequence[RewardSpec], messages: Sequence[Mapping[str, Any]], row: Row, scoring_turn: TrialTurn
) -> EpisodeScores:
    last_message = next(message for message in reversed(messages) if message["role"] == "assistant")
    has_several = len(messages) > 1 or bool(last_message.get("tool_calls"))
    completion = Completion(str(last_message.get("content") or ""), tuple(messages) if has_several else ())
    component_scores = [_score_component(spec, completion, row, scoring_turn) for spec in specs]
    counted_components = [component for component in component_scores if component.value is not None]
    weights = outcome_weights([component.spec for component in counted_components])
    [total] = totals([[component.value] for component in counted_components], weights) if counted_components else [None]
    excluded_ids = {id(component) for component, weight in zip(counted_components, weights, strict=True) if not weight}
    return EpisodeScores(
        [replace(component, in_total=id(component) not in excluded_ids) for component in component_scores], total
    )


def _score_component(spec: RewardSpec, completion: Completion, row: Row, scoring_turn: TrialTurn) -> ComponentScore:
    reward = LIBRARY.get(spec.function)
    if reward is None:
        return ComponentScore(spec, None, note=GONE)
    missing_columns = [name for name in reward.needs if not row.get(name)]
    if missing_columns and applies(spec, row):
        return ComponentScore(spec, None, note=NEEDS_COLUMNS.format(", ".join(missing_columns).replace("_", " ")))
    parts = turns_of(completion) if spec.per_turn else [completion]
    # By pressing the button, the user agreed that other servers are called.
    scores = column(replace(spec, per_turn=False), parts, [row] * len(parts), scoring_turn, ask=True)
    if scores.why:
        return ComponentScore(spec, None, note=scores.why)
    note = next((failure.message for failure in scores.failures), "") or next(filter(None, scores.notes), "")
    value, turns = mean(scores.values), scores.values if spec.per_turn else []
    if value is None and not note:
        note = "It doesn't apply."
    return ComponentScore(spec, value, list(turns), note, failed=bool(scores.failures))
