"""A complete replay: picking a run's stored groups, scoring them again and comparing, for a few replays at a time."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.catalogue.rewards import turns
from runs.engine.models import Run
from runs.pages.playground import replay_source
from runs.pages.playground.replay import RewardReplay, compare, score
from runs.pages.playground.replay_source import COUNTS, SELECTIONS, SPREAD_OVER_RUN, PickedGroups
from workers.contract.run.spec import RewardSpec

SECONDS = 25.0
"""Time limit for the scoring of one replay; groups that weren't scored are reported."""
MAX_CONCURRENT = 2
WAIT_S = 5.0
TOO_MANY_REPLAYS = "Other replays are running on this server. Try again in a moment."

_slots = threading.BoundedSemaphore(MAX_CONCURRENT)


@dataclass(frozen=True)
class Rescoring:
    problem: str = ""
    picked: PickedGroups | None = None
    replay: RewardReplay | None = None


def rescore(
    run: Run, specs: Sequence[RewardSpec], *, aggregation: str, selection: str, step: int | None, count: int, ask: bool
) -> Rescoring:
    """Pick, score and compare a run's groups. Invalid values of `selection` and `count` fall back to replay_source's
    defaults. With `ask`, rewards may call other servers."""
    if not specs:
        return Rescoring("Every component has an error, so there is nothing to score with.")
    if not _slots.acquire(timeout=WAIT_S):
        return Rescoring(TOO_MANY_REPLAYS)
    try:
        selection, count = (
            selection if selection in SELECTIONS else SPREAD_OVER_RUN,
            count if count in COUNTS else COUNTS[1],
        )
        picked = replay_source.pick(run, selection, step, count)
        return _compare(run, specs, picked, aggregation, ask)
    finally:
        _slots.release()


def _compare(run: Run, specs: Sequence[RewardSpec], picked: PickedGroups, aggregation: str, ask: bool) -> Rescoring:
    if not picked.groups:
        return Rescoring("No completions of this run are stored there, so there is nothing to score again.", picked)
    rescored_groups = score(picked.groups, list(specs), turns.turn(SECONDS), ask=ask, run_spec=run.spec)
    if not rescored_groups:
        return Rescoring("Scoring timed out before every component had scored a group.", picked)
    scale = (run.spec.get("grpo") or {}).get("scale_rewards", "group")
    replay = compare(
        rescored_groups,
        list(specs),
        aggregation=aggregation,
        scale=scale if scale in ("group", "batch", "none", True, False) else "group",
        requested=len(picked.groups),
    )
    if not replay.groups:
        return Rescoring("None of these components can be scored here, so there are no totals to compare.", picked)
    return Rescoring("", picked, replay)
