"""The entry point to episodes in the playground, which are played in child processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from controlplane.catalogue.environments.opening import EPISODES, GRACE_S, child_for, given_of, tools_of
from controlplane.catalogue.rewards.given import Given
from controlplane.platform.confined.limits import StoppedAtLimit
from controlplane.platform.confined.tasks import ConfinedTask
from runs.pages.playground import episode_play, model_turn
from runs.pages.playground.episode_play import SECONDS, Play, WrittenMove
from runs.pages.playground.model_turn import ModelPlayer
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.environments.executor import CLOSING_S, MIN_OPENING_S, Call, EnvironmentAnswer, Unusable


def seconds_for(limits: EpisodeLimits) -> float:
    """Return the time after which a child is killed: its parts are opened twice, first to list their tools, and the
    last call may begin at the deadline."""
    call_s = min(limits.call_s, SECONDS)
    return SECONDS + MIN_OPENING_S + max(MIN_OPENING_S, call_s) + call_s + CLOSING_S + GRACE_S


def play(
    parts: Sequence[PartSpec],
    limits: EpisodeLimits,
    row: Mapping[str, Any],
    seed: int,
    moves: Sequence[WrittenMove],
    player: ModelPlayer | None = None,
) -> Play:
    """Play the moves, then one more that the player, if given, writes. Problems are in the result. Raises Busy if no
    process becomes free."""
    given = given_of(parts, *([player.endpoint] if player else []))
    try:
        with child_for(parts, _PLAY, seconds_for(limits)) as play_in_child:
            return play_in_child(list(parts), _bounded(limits), given, dict(row), seed, list(moves), player)
    except StoppedAtLimit as error:
        return Play(problem=str(error), limits=limits)


def call(parts: Sequence[PartSpec], limits: EpisodeLimits, request: Call) -> tuple[EnvironmentAnswer, bool]:
    """Make one call in a new episode and return the answer, and whether it was truncated. Raises Unusable if the
    environment can't be opened or exceeds a limit, and Busy if no process becomes free."""
    try:
        with child_for(parts, _CALL, seconds_for(limits)) as call_in_child:
            return call_in_child(list(parts), _bounded(limits), given_of(parts), request)
    except StoppedAtLimit as error:
        raise Unusable(str(error)) from None


def _bounded(limits: EpisodeLimits) -> EpisodeLimits:
    return replace(limits, call_s=min(limits.call_s, SECONDS))


def play_here(
    parts: list[PartSpec],
    limits: EpisodeLimits,
    given: Given,
    row: dict[str, Any],
    seed: int,
    moves: list[WrittenMove],
    player: ModelPlayer | None,
) -> Play:
    until = time.monotonic() + SECONDS
    with tools_of(given, SECONDS) as tools:
        write = partial(model_turn.write, player, row["prompt"], tools=tools, until=until) if player else None
        return episode_play.play(parts, limits, tools, row, seed, moves, until, write)


def call_here(
    parts: list[PartSpec], limits: EpisodeLimits, given: Given, request: Call
) -> tuple[EnvironmentAnswer, bool]:
    with tools_of(given, SECONDS) as tools:
        return episode_play.call(parts, limits, tools, request, time.monotonic() + SECONDS)


_PLAY = ConfinedTask(play_here, "Playing this episode", pool=EPISODES)
_CALL = ConfinedTask(call_here, "Calling this tool", (Unusable,), EPISODES)
