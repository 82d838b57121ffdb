"""An episode played by hand: its moves are carried out from the start by the executor that runs use.

Nothing is kept between requests. Each plays all moves again on the same row with the same seed, so a server sees the
earlier moves again, and an environment that draws by its own means may answer them differently.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.environments.models import EnvironmentVersion
from workers.contract.episodes import EpisodeEnd, EpisodeLimits
from workers.environments import ToolDescription
from workers.environments.executor import Answer, Call, Executor, Move, Unusable
from workers.rewards.tools import Tools

MOST_BYTES = 200_000
"""Of the moves that a page sends back."""
MOST_MOVES = 200
ENDS = {
    "": "",
    "eos": "The model called no tool, and nothing answers its text: this is its answer.",
    EpisodeEnd.DONE: "The environment said so.",
    EpisodeEnd.TURNS: "No more turns are allowed.",
    EpisodeEnd.TIME: "The time for playing here was up.",
    EpisodeEnd.FAILED: "The environment broke.",
}


@dataclass(frozen=True)
class WrittenMove:
    """What somebody writes in the model's place."""

    text: str = ""
    calls: tuple[Call, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        calls = [{"name": call.name, "arguments": call.arguments} for call in self.calls]
        return {"text": self.text, "calls": calls}


@dataclass(frozen=True)
class Turn:
    move: WrittenMove
    answers: list[tuple[str, str, Answer]]
    """(tool, its arguments as JSON, the answer); the tool is "" for what answers the text."""


@dataclass
class Play:
    tools: list[ToolDescription] = field(default_factory=list)
    opening: str = ""
    turns: list[Turn] = field(default_factory=list)
    end: str = ""
    """One of ENDS; "" while it goes on."""
    problem: str = ""
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)

    @property
    def end_words(self) -> str:
        return ENDS[self.end]

    @property
    def reward(self) -> float | None:
        """All that the environment gave."""
        given = [answer.reward for turn in self.turns for _, _, answer in turn.answers if answer.reward is not None]
        return sum(given) if given else None

    @property
    def moves(self) -> str:
        """The moves so far, for the page to send back."""
        return json.dumps([turn.move.as_dict() for turn in self.turns], ensure_ascii=False)


def read_moves(text: str) -> list[WrittenMove]:
    """Raises ValueError."""
    if len(text) > MOST_BYTES:
        raise ValueError("The episode is too long to be played on.")
    try:
        stored = json.loads(text or "[]")
        moves = [
            WrittenMove(str(one["text"]), tuple(Call(str(c["name"]), c["arguments"]) for c in one["calls"]))
            for one in stored
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError("The moves that came with the page can't be read. Begin again.") from None
    return moves[:MOST_MOVES]


def executor(version: EnvironmentVersion, tools: Tools) -> Executor:
    """Raises Unusable."""
    return Executor(version.specs, version.episode_limits, tools)


def play(
    version: EnvironmentVersion,
    tools: Tools,
    row: Mapping[str, Any],
    seed: int,
    moves: Sequence[WrittenMove],
    until: float,
) -> Play:
    """`until`: by the monotonic clock. Never raises because of the environment."""
    try:
        carried = executor(version, tools)
    except Unusable as error:
        return Play(problem=str(error), limits=version.episode_limits)
    [played] = carried.begin([row], [seed])
    result = Play(carried.descriptions, played.opening, limits=version.episode_limits, problem=played.problem)
    try:
        for move in moves if not played.problem else ():
            if not move.calls and not carried.has_game:
                result.turns.append(Turn(move, []))
                result.end = "eos"
                break
            [answers] = carried.carry_out([Move(played, move.calls, move.text, until)])
            result.turns.append(Turn(move, _named(move, answers)))
            result.end = _end(result, answers, until)
            if result.end:
                break
    finally:
        carried.close([played])
    return result


def call(version: EnvironmentVersion, tools: Tools, one: Call, until: float) -> Answer:
    """One call in an episode of its own. Raises Unusable."""
    carried = executor(version, tools)
    [played] = carried.begin([{}], [0])
    try:
        [[answer]] = carried.carry_out([Move(played, (one,), deadline=until)])
    finally:
        carried.close([played])
    return answer


def _named(move: WrittenMove, answers: Sequence[Answer]) -> list[tuple[str, str, Answer]]:
    if not move.calls:
        return [("", "", answer) for answer in answers]
    return [
        (one.name, json.dumps(one.arguments, ensure_ascii=False), answer)
        for one, answer in zip(move.calls, answers, strict=True)
    ]


def _end(result: Play, answers: Sequence[Answer], until: float) -> str:
    if any(answer.failed for answer in answers):
        return EpisodeEnd.FAILED
    if any(answer.done for answer in answers):
        return EpisodeEnd.DONE
    if time.monotonic() >= until:
        return EpisodeEnd.TIME
    return EpisodeEnd.TURNS if len(result.turns) >= result.limits.turns else ""
