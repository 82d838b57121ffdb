"""The scores that a reward config gives an episode of the playground."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.catalogue.rewards.turns import TrialTurn
from runs.insight.scoring.evaluating import column
from runs.pages.playground.episode_play import MOST_BYTES, storable
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.advantages import mean, totals
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Row, turns_of

GONE = "The library no longer has it."
NEEDS = "It needs values of a dataset's row: {}."


@dataclass(frozen=True)
class ComponentScore:
    spec: RewardSpec
    value: float | None
    """The score; of a component that scores each turn, the mean."""
    turns: list[float | None] = field(default_factory=list)
    """The turns' scores, of a component that scores each turn."""
    note: str = ""
    """Why there is no score, or what the component says."""
    failed: bool = False
    in_total: bool = True


@dataclass(frozen=True)
class EpisodeScores:
    components: list[ComponentScore]
    total: float | None
    """None: no component applies."""

    @property
    def apart(self) -> bool:
        """A component's scores of turns are not in the total."""
        return any(one.turns and not one.in_total for one in self.components)

    @property
    def turns(self) -> list[float | None]:
        """The reward of each turn by itself; empty without components that score turns."""
        scored = [one for one in self.components if one.turns]
        return totals([one.turns for one in scored], [one.spec.weight for one in scored]) if scored else []


def read(text: str) -> list[dict[str, Any]]:
    """The messages that a page sends back. Raises ValueError."""
    if len(text) > 10 * MOST_BYTES:
        raise ValueError("The episode is too long to be scored here.")
    try:
        messages = storable(json.loads(text or "[]"))
    except (ValueError, RecursionError):
        messages = None
    return known(messages)


def known(messages: Any) -> list[dict[str, Any]]:
    """The same, read already. Raises ValueError."""
    fine = isinstance(messages, list) and all(isinstance(one, dict) and "role" in one for one in messages)
    if not fine or not any(one["role"] == "assistant" for one in messages):
        raise ValueError("There is no turn to score yet. Play one first.")
    return messages  # type: ignore[no-any-return]


def score(
    specs: Sequence[RewardSpec], messages: Sequence[Mapping[str, Any]], row: Row, own: TrialTurn
) -> EpisodeScores:
    last = next(one for one in reversed(messages) if one["role"] == "assistant")
    several = len(messages) > 1 or bool(last.get("tool_calls"))
    completion = Completion(str(last.get("content") or ""), tuple(messages) if several else ())
    scored = [_scored(spec, completion, row, own) for spec in specs]
    counted = [one for one in scored if one.value is not None]
    weights = outcome_weights([one.spec for one in counted])
    [total] = totals([[one.value] for one in counted], weights) if counted else [None]
    apart = {id(one) for one, weight in zip(counted, weights, strict=True) if not weight}
    return EpisodeScores([replace(one, in_total=id(one) not in apart) for one in scored], total)


def _scored(spec: RewardSpec, completion: Completion, row: Row, own: TrialTurn) -> ComponentScore:
    reward = LIBRARY.get(spec.function)
    if reward is None:
        return ComponentScore(spec, None, note=GONE)
    if missing := [name for name in reward.needs if not row.get(name)]:
        return ComponentScore(spec, None, note=NEEDS.format(", ".join(missing).replace("_", " ")))
    parts = turns_of(completion) if spec.per_turn else [completion]
    # Whoever presses the button wants other servers asked, too.
    found = column(replace(spec, per_turn=False), parts, [row] * len(parts), own, ask=True)
    if found.why:
        return ComponentScore(spec, None, note=found.why)
    note = next((failure.message for failure in found.failures), "") or next(filter(None, found.notes), "")
    value, turns = mean(found.values), found.values if spec.per_turn else []
    if value is None and not note:
        note = "It doesn't apply."
    return ComponentScore(spec, value, list(turns), note, failed=bool(found.failures))
