"""An episode in the playground, played by hand or by a model, with the same executor as in runs.

No state is kept between requests: each request replays all moves on the same row with the same seed. So servers see
earlier moves again, and an environment that has its own randomness may respond to them differently.
"""

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

MAX_BYTES = 200_000
"""Maximum size of the list of moves that a page sends back."""
MAX_MOVES = 200
MAX_CALLS = 64
MAX_TEXT_CHARS = 20_000
SECONDS = 60.0
"""Time limit for a request, which replays all moves and may ask a model for one more."""
CHARACTERS_PER_TOKEN = 4
"""Ratio by which a result limit in tokens is converted to characters, since there is no tokenizer."""
ENDS = {
    "": "",
    "eos": "The last turn called no tool, and no game responds to its text, so it is the final answer.",
    EpisodeEnd.DONE: "The environment ended the episode.",
    EpisodeEnd.TURNS: "No more turns are allowed.",
    EpisodeEnd.TIME: "The playground's time limit was reached.",
    EpisodeEnd.FAILED: "The environment failed.",
}


@dataclass(frozen=True)
class WrittenMove:
    text: str = ""
    calls: tuple[Call, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        calls = [{"name": call.name, "arguments": call.arguments} for call in self.calls]
        return {"text": self.text, "calls": calls}


@dataclass(frozen=True)
class PlayedTurn:
    move: WrittenMove
    answers: list[tuple[str, EnvironmentAnswer]]
    """Pairs of (tool, the environment's answer); the tool is "" for an answer to the text."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        message: dict[str, Any] = {"role": "assistant", "content": self.move.text}
        if self.move.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.move.calls
            ]
        return [message, *(_message(name, answer) for name, answer in self.answers)]


class NotWritten(Exception):
    """Raised when a model has written no turn; the message explains why."""


@dataclass
class Play:
    tools: list[ToolDescription] = field(default_factory=list)
    opening: str = ""
    turns: list[PlayedTurn] = field(default_factory=list)
    end: str = ""
    """A key of ENDS; "" while the episode continues."""
    problem: str = ""
    not_written: str = ""
    """Reason why the model has written no turn; the episode can continue."""
    cut: int = 0
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)

    @property
    def end_sentence(self) -> str:
        return ENDS[self.end]

    @property
    def reward(self) -> float | None:
        rewards = [answer.reward for turn in self.turns for _, answer in turn.answers if answer.reward is not None]
        return sum(rewards) if rewards else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for turn in self.turns for message in turn.messages]

    @property
    def as_json(self) -> str:
        return json.dumps(self.messages, ensure_ascii=False)

    @property
    def episode(self) -> episodes.StoredEpisode:
        return episodes.by_turn(self.messages)

    @property
    def characters(self) -> int:
        return most_characters(self.limits)

    @property
    def moves(self) -> str:
        return json.dumps([turn.move.as_dict() for turn in self.turns], ensure_ascii=False)


def read_moves(moves_json: str) -> list[WrittenMove]:
    """Parse the moves that a page sends back. Raises ValueError."""
    if len(moves_json) > MAX_BYTES:
        raise ValueError("The episode is too long to continue.")
    try:
        stored_moves = storable(json.loads(moves_json or "[]"))
        moves = [
            WrittenMove(str(move["text"]), tuple(Call(str(c["name"]), c["arguments"]) for c in move["calls"]))
            for move in stored_moves
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError("The moves sent by the page are invalid. Start again.") from None
    return moves[:MAX_MOVES]


def storable(value: Any) -> Any:
    """Replace lone surrogates, which can't be encoded in a page, and return the value."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def most_characters(limits: EpisodeLimits) -> int:
    return limits.output_tokens * CHARACTERS_PER_TOKEN


def executor(version: EnvironmentVersion, tools: Tools) -> Executor:
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
    """Play the moves, then one more from `write`, which gets the play so far and may raise NotWritten.

    `until` is a deadline on the monotonic clock. Errors of the environment become the result's `problem`.
    """
    try:
        runner = executor(version, tools)
    except Unusable as error:
        return Play(problem=str(error), limits=version.episode_limits)
    [open_episode] = runner.begin([row], [seed])
    result = Play(
        runner.descriptions, open_episode.opening, limits=version.episode_limits, problem=open_episode.problem
    )
    try:
        for move in moves:
            if result.end or result.problem:
                break
            _carry_out(result, runner, open_episode, move, until)
        if write is not None and not result.end and not result.problem:
            _carry_out(result, runner, open_episode, write(result), until)
    except NotWritten as error:
        result.not_written = str(error)
    finally:
        runner.close([open_episode])
    return result


def call(version: EnvironmentVersion, tools: Tools, request: Call, until: float) -> tuple[EnvironmentAnswer, bool]:
    """Make one call in a new episode and return the answer, and whether it was truncated. Raises Unusable."""
    runner = executor(version, tools)
    [open_episode] = runner.begin([{}], [0])
    try:
        [[answer]] = runner.carry_out([Move(open_episode, (request,), deadline=until)])
    finally:
        runner.close([open_episode])
    return _readable(answer, version.episode_limits)


def _carry_out(result: Play, runner: Executor, open_episode: OpenEpisode, move: WrittenMove, deadline: float) -> None:
    """Play a move and add the turn to the result, ending the episode like workers.trainer.episodes.rollout."""
    is_last_turn = len(result.turns) + 1 >= result.limits.turns
    if not move.calls and not runner.has_game:
        result.turns.append(PlayedTurn(move, []))
        result.end = "eos"
        return
    if move.calls and is_last_turn and not runner.keeps_state:
        result.turns.append(PlayedTurn(move, []))
        result.end = EpisodeEnd.TURNS
        return
    text = "" if move.calls else without_thinking(move.text)
    [results] = runner.carry_out([Move(open_episode, move.calls, text, deadline)])
    answers = [_readable(answer, result.limits) for answer in results]
    result.cut += sum(was_truncated for _, was_truncated in answers)
    names = [request.name for request in move.calls] or [""]
    result.turns.append(PlayedTurn(move, [(name, answer) for name, (answer, _) in zip(names, answers, strict=True)]))
    result.end = _end(result, results, deadline)


def _readable(answer: EnvironmentAnswer, limits: EpisodeLimits) -> tuple[EnvironmentAnswer, bool]:
    """Truncate an answer to the length limit, and return it and whether it was truncated."""
    text, limit = answer.text.encode(errors="replace").decode(), most_characters(limits)
    if len(text) <= limit:
        return replace(answer, text=text), False
    return replace(answer, text=f"{text[:limit]}\n(truncated here: the result is too long)"), True


def _message(name: str, answer: EnvironmentAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "tool", "name": name} if name else {"role": "user"}
    message |= {"content": answer.text, "seconds": round(answer.seconds, 3), "error": answer.error}
    return message if answer.reward is None else {**message, "reward": answer.reward}


def _end(result: Play, answers: Sequence[EnvironmentAnswer], deadline: float) -> str:
    if any(answer.failed for answer in answers):
        return EpisodeEnd.FAILED
    if any(answer.done for answer in answers):
        return EpisodeEnd.DONE
    if time.monotonic() >= deadline:
        return EpisodeEnd.TIME
    return EpisodeEnd.TURNS if len(result.turns) >= result.limits.turns else ""
