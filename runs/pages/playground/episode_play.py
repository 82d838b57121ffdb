"""An episode in the playground, played by hand or by a model, with the same executor as in runs. It is played in a
child (`confined_play`).

No state is kept between requests: each request replays all moves on the same row with the same seed. So servers see
earlier moves again, and an environment that has its own randomness may respond to them differently.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workers.contract.run.episodes import EpisodeEnd, EpisodeLimits, PartSpec
from workers.environments.entry import ToolDescription, without_thinking
from workers.environments.executor import Call, EnvironmentAnswer, Executor, Move, OpenEpisode, Unusable
from workers.rewards.tools import Tools

if TYPE_CHECKING:
    from runs.insight.completions.episodes import StoredEpisode

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
    """Failure of a model to write a turn; the message explains why."""


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
    kept: list[WrittenMove] = field(default_factory=list)
    """The moves before this request, which the page keeps if a problem ends the play, so that it can be repeated."""
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
    def episode(self) -> "StoredEpisode":
        from runs.insight.completions import episodes  # noqa: PLC0415  children have no database

        return episodes.by_turn(self.messages)

    @property
    def characters(self) -> int:
        return max_characters(self.limits)

    @property
    def moves(self) -> str:
        moves = self.kept if self.problem else [turn.move for turn in self.turns]
        return json.dumps([move.as_dict() for move in moves], ensure_ascii=False)


def read_moves(moves_json: str) -> list[WrittenMove]:
    """Parse the moves that a page sends back, up to MAX_MOVES. Raises ValueError if they are too long or not valid."""
    if len(moves_json) > MAX_BYTES:
        raise ValueError("The episode is too long to continue.")
    try:
        stored_moves = utf8_safe(json.loads(moves_json or "[]"))
        moves = [
            WrittenMove(str(move["text"]), tuple(Call(str(c["name"]), c["arguments"]) for c in move["calls"]))
            for move in stored_moves
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError("The moves sent by the page are invalid. Start again.") from None
    return moves[:MAX_MOVES]


def utf8_safe(value: Any) -> Any:
    """Replace lone surrogates, which can't be encoded in a page, and return the value."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def max_characters(limits: EpisodeLimits) -> int:
    return limits.output_tokens * CHARACTERS_PER_TOKEN


def play(
    parts: Sequence[PartSpec],
    limits: EpisodeLimits,
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
        runner = Executor(parts, limits, tools)
    except Unusable as error:
        return Play(problem=str(error), limits=limits)
    [open_episode] = runner.begin([row], [seed])
    result = Play(runner.descriptions, open_episode.opening, limits=limits, problem=open_episode.problem)
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


def call(
    parts: Sequence[PartSpec], limits: EpisodeLimits, tools: Tools, request: Call, until: float
) -> tuple[EnvironmentAnswer, bool]:
    """Make one call in a new episode and return the answer, and whether it was truncated. Raises Unusable if the
    environment can't be opened."""
    runner = Executor(parts, limits, tools)
    [open_episode] = runner.begin([{}], [0])
    try:
        [[answer]] = runner.carry_out([Move(open_episode, (request,), deadline=until)])
    finally:
        runner.close([open_episode])
    return _truncate(answer, limits)


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
    answers = [_truncate(answer, result.limits) for answer in results]
    result.cut += sum(was_truncated for _, was_truncated in answers)
    names = [request.name for request in move.calls] or [""]
    result.turns.append(PlayedTurn(move, [(name, answer) for name, (answer, _) in zip(names, answers, strict=True)]))
    result.end = _end(result, results, deadline)


def _truncate(answer: EnvironmentAnswer, limits: EpisodeLimits) -> tuple[EnvironmentAnswer, bool]:
    """Truncate an answer to the length limit, and return it and whether it was truncated."""
    text, limit = answer.text.encode(errors="replace").decode(), max_characters(limits)
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
