"""An episode in the playground, by hand or by a model: its moves are carried out by the executor that runs use.

Nothing is kept between requests. Each plays all moves again on the same row with the same seed, so a server sees the
earlier moves again, and an environment that draws by its own means may answer them differently.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.catalogue.environments.models import EnvironmentVersion
from runs.insight.completions import episodes
from workers.contract.run.episodes import EpisodeEnd, EpisodeLimits
from workers.environments.entry import ToolDescription, without_thinking
from workers.environments.executor import Call, EnvironmentAnswer, Executor, Move, OpenEpisode, Unusable
from workers.rewards.tools import Tools

MOST_BYTES = 200_000
"""Of the moves that a page sends back."""
MOST_MOVES = 200
MOST_CALLS = 64
"""In one move."""
LONGEST_TEXT = 20_000
SECONDS = 60.0
"""For one request: all moves are carried out again, and a model may write one more."""
CHARACTERS_PER_TOKEN = 4
"""No tokenizer is at hand here, and results are cut to so many for each token that a run would leave."""
ENDS = {
    "": "",
    "eos": "The last turn called no tool, and nothing answers its text: it is the answer.",
    EpisodeEnd.DONE: "The environment said so.",
    EpisodeEnd.TURNS: "No more turns are allowed.",
    EpisodeEnd.TIME: "The time for playing here was up.",
    EpisodeEnd.FAILED: "The environment broke.",
}


@dataclass(frozen=True)
class WrittenMove:
    """The text of a model, or of a person in its place."""

    text: str = ""
    calls: tuple[Call, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        calls = [{"name": call.name, "arguments": call.arguments} for call in self.calls]
        return {"text": self.text, "calls": calls}


@dataclass(frozen=True)
class PlayedTurn:
    move: WrittenMove
    answers: list[tuple[str, EnvironmentAnswer]]
    """(tool, the answer); the tool is "" for what answers the text."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The steps in the form of workers.contract.run.episodes."""
        said: dict[str, Any] = {"role": "assistant", "content": self.move.text}
        if self.move.calls:
            said["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.move.calls
            ]
        return [said, *(_message(name, answer) for name, answer in self.answers)]


class NotWritten(Exception):
    """A model has written no turn. The text says why, for people."""


@dataclass
class Play:
    tools: list[ToolDescription] = field(default_factory=list)
    opening: str = ""
    turns: list[PlayedTurn] = field(default_factory=list)
    end: str = ""
    """One of ENDS; "" while it goes on."""
    problem: str = ""
    not_written: str = ""
    """Why the model that was asked has written no turn; the episode can go on."""
    cut: int = 0
    """Results that were cut."""
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)

    @property
    def end_words(self) -> str:
        return ENDS[self.end]

    @property
    def reward(self) -> float | None:
        """All that the environment gave."""
        given = [answer.reward for turn in self.turns for _, answer in turn.answers if answer.reward is not None]
        return sum(given) if given else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for turn in self.turns for message in turn.messages]

    @property
    def as_json(self) -> str:
        """The messages, for the page to send back."""
        return json.dumps(self.messages, ensure_ascii=False)

    @property
    def episode(self) -> episodes.StoredEpisode:
        return episodes.by_turn(self.messages)

    @property
    def characters(self) -> int:
        """To which results are cut."""
        return most_characters(self.limits)

    @property
    def moves(self) -> str:
        """The moves so far, for the page to send back."""
        return json.dumps([turn.move.as_dict() for turn in self.turns], ensure_ascii=False)


def read_moves(text: str) -> list[WrittenMove]:
    """Raises ValueError."""
    if len(text) > MOST_BYTES:
        raise ValueError("The episode is too long to be played on.")
    try:
        stored = storable(json.loads(text or "[]"))
        moves = [
            WrittenMove(str(one["text"]), tuple(Call(str(c["name"]), c["arguments"]) for c in one["calls"]))
            for one in stored
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError("The moves that came with the page can't be read. Begin again.") from None
    return moves[:MOST_MOVES]


def storable(value: Any) -> Any:
    """JSON without the halves of characters that no page can be written with."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def most_characters(limits: EpisodeLimits) -> int:
    return limits.output_tokens * CHARACTERS_PER_TOKEN


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
    write: Callable[[Play], WrittenMove] | None = None,
) -> Play:
    """Carry out the moves, and then the one that `write` makes of what came of them; it may raise NotWritten. `until`:
    by the monotonic clock. Never raises because of the environment."""
    try:
        carried = executor(version, tools)
    except Unusable as error:
        return Play(problem=str(error), limits=version.episode_limits)
    [played] = carried.begin([row], [seed])
    result = Play(carried.descriptions, played.opening, limits=version.episode_limits, problem=played.problem)
    try:
        for move in moves:
            if result.end or result.problem:
                break
            _carry_out(result, carried, played, move, until)
        if write is not None and not result.end and not result.problem:
            _carry_out(result, carried, played, write(result), until)
    except NotWritten as error:
        result.not_written = str(error)
    finally:
        carried.close([played])
    return result


def call(version: EnvironmentVersion, tools: Tools, one: Call, until: float) -> tuple[EnvironmentAnswer, bool]:
    """One call in an episode of its own, and whether its result was cut. Raises Unusable."""
    carried = executor(version, tools)
    [played] = carried.begin([{}], [0])
    try:
        [[answer]] = carried.carry_out([Move(played, (one,), deadline=until)])
    finally:
        carried.close([played])
    return _readable(answer, version.episode_limits)


def _carry_out(result: Play, carried: Executor, played: OpenEpisode, move: WrittenMove, until: float) -> None:
    """End a turn like the run's rollouts (workers.trainer.episodes.rollout)."""
    last = len(result.turns) + 1 >= result.limits.turns
    if not move.calls and not carried.has_game:
        result.turns.append(PlayedTurn(move, []))
        result.end = "eos"
        return
    if move.calls and last and not carried.keeps_state:
        result.turns.append(PlayedTurn(move, []))
        result.end = EpisodeEnd.TURNS
        return
    text = "" if move.calls else without_thinking(move.text)
    [given] = carried.carry_out([Move(played, move.calls, text, until)])
    answers = [_readable(answer, result.limits) for answer in given]
    result.cut += sum(cut for _, cut in answers)
    names = [one.name for one in move.calls] or [""]
    result.turns.append(PlayedTurn(move, [(name, answer) for name, (answer, _) in zip(names, answers, strict=True)]))
    result.end = _end(result, given, until)


def _readable(answer: EnvironmentAnswer, limits: EpisodeLimits) -> tuple[EnvironmentAnswer, bool]:
    """Return the text that the model reads, and whether it was cut."""
    text, most = answer.text.encode(errors="replace").decode(), most_characters(limits)
    if len(text) <= most:
        return replace(answer, text=text), False
    return replace(answer, text=f"{text[:most]}\n(cut here: the result is too long)"), True


def _message(name: str, answer: EnvironmentAnswer) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "tool", "name": name} if name else {"role": "user"}
    said |= {"content": answer.text, "seconds": round(answer.seconds, 3), "error": answer.error}
    return said if answer.reward is None else {**said, "reward": answer.reward}


def _end(result: Play, answers: Sequence[EnvironmentAnswer], until: float) -> str:
    if any(answer.failed for answer in answers):
        return EpisodeEnd.FAILED
    if any(answer.done for answer in answers):
        return EpisodeEnd.DONE
    if time.monotonic() >= until:
        return EpisodeEnd.TIME
    return EpisodeEnd.TURNS if len(result.turns) >= result.limits.turns else ""
