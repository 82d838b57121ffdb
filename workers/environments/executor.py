"""Plays the environment's side of episodes: opens their sessions and carries out all calls of a turn side by side.

The trainer's rollouts and the control plane's playground go through it. Whatever a session does (blocks, raises,
answers 10 MB, ends at once, gives NaN, shows other tools than before) becomes a sentence that the model reads, or the
end of that one episode; it is never an exception here. Results have the calls' order, whichever came first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.run.episodes import EpisodeLimits, PartSpec, ToolError
from workers.environments import arguments
from workers.environments.concurrent_steps import Done, Left, Step, Task, run
from workers.environments.entry import Entry, EntryKind, Observation, Result, Session, ToolDescription
from workers.environments.library import LIBRARY
from workers.rewards.tools import Tools, Unavailable
from workers.sandbox.outcomes import SandboxUnavailable

MOST_CHARACTERS = 1_000_000
"""Of a result; a longer one is an error."""
CHARACTERS_PER_TOKEN = 16
"""A result is cut to this many for each token of its limit, before anybody counts its tokens."""
LONGEST_OPENING = 100_000
"""Characters of what a reset adds to the prompt."""
OPENING_S = 60.0
"""For opening and resetting an episode's sessions, at least: the first one may start a program."""
CLOSING_S = 5.0
_UNREADABLE = (
    "Your call can't be read, and nothing was called. Write it again, in just the form that you were told, with the "
    "name of a tool and its arguments as an object."
)


class Unusable(Exception):
    """The environment can't be played at all. The text says why, for people."""


@dataclass(frozen=True)
class Call:
    """As the model wrote it: the arguments may be anything."""

    name: str
    arguments: Any
    unreadable: bool = False
    """The model began a call, and what it wrote is none."""


@dataclass(frozen=True)
class Answer:
    """To a call, or to what the model said."""

    text: str
    error: str = ""
    """One of ToolError."""
    seconds: float = 0.0
    reward: float | None = None
    done: bool = False
    failed: bool = False
    """The environment broke: the episode can't go on."""


@dataclass
class Played:
    """The environment's side of one episode."""

    sessions: dict[str, Session | None]
    """By the part's name. None: it couldn't be opened, or was left behind."""
    opening: str = ""
    """What is added to the last message of the prompt."""
    problem: str = ""
    """Why the episode can't go on."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a part has no session."""


@dataclass(frozen=True)
class Move:
    """What the model did in one turn."""

    played: Played
    calls: Sequence[Call] = ()
    text: str = ""
    """Without calls: what it says to the game."""
    deadline: float = float("inf")
    """Of the episode, by time.monotonic()."""


class Executor:
    """Thread-safe as far as its sessions are: one round at a time."""

    def __init__(
        self, parts: Sequence[PartSpec], limits: EpisodeLimits, tools: Tools, *, library: Mapping[str, Entry] = LIBRARY
    ) -> None:
        """Opens every part once, to see its tools. Raises Unusable."""
        self._limits = limits
        self._tools = tools
        self._parts: list[tuple[PartSpec, Entry, Any]] = []
        for part in parts:
            self._parts.append((part, *_entry_of(part, library)))
        played_in = [part.name for part, entry, _ in self._parts if entry.kind is not EntryKind.TOOL]
        if len(played_in) > 1:
            raise Unusable(f"Only one part can be played in, and there are {len(played_in)}: {', '.join(played_in)}.")
        self._game = next((part.name for part, entry, _ in self._parts if entry.kind is EntryKind.GAME), "")
        self._stateful = set(played_in)
        self._described: dict[str, list[ToolDescription]] = {}
        self._of_tool: dict[str, str] = {}
        self._tool: dict[str, ToolDescription] = {}
        self._describe()

    @property
    def descriptions(self) -> list[ToolDescription]:
        """Of all tools, in the parts' order."""
        return [one for part, _, _ in self._parts for one in self._described[part.name]]

    @property
    def has_game(self) -> bool:
        """The model's text without calls is answered."""
        return bool(self._game)

    @property
    def keeps_state(self) -> bool:
        """Something is played in, so that even an episode's last move counts."""
        return bool(self._stateful)

    def begin(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Played]:
        """Open and reset the sessions of one episode for each row."""
        played = [Played({part.name: None for part, _, _ in self._parts}) for _ in rows]
        seconds = max(OPENING_S, self._limits.call_s)
        tasks, places = [], []
        for episode, row, seed in zip(played, rows, seeds, strict=True):
            for number, (part, _, _) in enumerate(self._parts):
                opening = _Opening(self, number, row, seed)
                tasks.append(Task([Step(opening.run, seconds)], leave=opening.close))
                places.append((episode, part.name, opening))
        run(tasks, at_once=self._limits.at_once)
        for (episode, name, opening), task in zip(places, tasks, strict=True):
            self._take(episode, name, opening, task.results[0])
        return played

    def carry_out(self, moves: Sequence[Move]) -> list[list[Answer]]:
        """One answer to each call, or one to the text."""
        rounds = [self._planned(move) for move in moves]
        tasks = [task for planned in rounds for task, _ in planned.tasks]
        run(tasks, at_once=self._limits.at_once)
        return [self._collected(planned) for planned in rounds]

    def close(self, played: Sequence[Played]) -> None:
        """Close all sessions of these episodes."""
        tasks = []
        for episode in played:
            for name, session in episode.sessions.items():
                if session is not None:
                    tasks.append(Task([Step(_closing(session), CLOSING_S)]))
                    episode.sessions[name] = None
        run(tasks, at_once=self._limits.at_once)

    # --- the start ----------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        opened = [_Opening(self, number, {}, 0, reset=False) for number in range(len(self._parts))]
        tasks = [Task([Step(one.run, OPENING_S)], leave=one.close) for one in opened]
        run(tasks, at_once=self._limits.at_once)
        for (part, entry, _), one, task in zip(self._parts, opened, tasks, strict=True):
            one.close()
            value = task.results[0].value
            if isinstance(value, BaseException):
                raise Unusable(f"{entry.title} ({part.name}) can't be opened: {_words(value)}")
            self._described[part.name] = one.tools
            for tool in one.tools:
                self._add(part, tool)

    def _add(self, part: PartSpec, tool: ToolDescription) -> None:
        if tool.name in self._of_tool:
            raise Unusable(f"Two tools are called {tool.name!r}: a model could not tell them apart.")
        if problem := arguments.schema_problem(tool):
            raise Unusable(problem)
        self._of_tool[tool.name] = part.name
        self._tool[tool.name] = tool

    def _take(self, episode: Played, name: str, opening: _Opening, done: Done) -> None:
        if isinstance(done.value, BaseException):
            why = f"it can't be opened: {_words(done.value)}"
        elif _plain(opening.tools) != _plain(self._described[name]):
            why = "it has other tools than at the start of the run."
        else:
            episode.sessions[name] = opening.session
            episode.opening += opening.text
            return
        opening.close()
        self._lose(episode, name, why)

    def _lose(self, episode: Played, name: str, why: str) -> None:
        episode.sessions[name] = None
        episode.missing[name] = why
        if name in self._stateful:
            episode.problem = episode.problem or f"{name}: {why}"

    # --- a turn ---------------------------------------------------------------------------------------------------

    def _planned(self, move: Move) -> _Planned:
        planned = _Planned(move, [None] * max(len(move.calls), 1), [])
        if not move.calls:
            self._plan_text(planned)
            return planned
        in_order: dict[str, list[int]] = {}
        for number, call in enumerate(move.calls):
            refusal = self._refusal(move, number, call)
            if refusal is not None:
                planned.answers[number] = refusal
            else:
                part = self._of_tool[call.name]
                # What keeps a state gets its calls one after another.
                in_order.setdefault(part if part in self._stateful else f"{part} {number}", []).append(number)
        for numbers in in_order.values():
            part = self._of_tool[move.calls[numbers[0]].name]
            session = move.played.sessions[part]
            assert session is not None  # noqa: S101  # otherwise it was refused
            steps = [Step(_calling(session, move.calls[number]), self._limits.call_s) for number in numbers]
            planned.tasks.append((Task(steps, deadline=move.deadline, leave=session.close), numbers))
        return planned

    def _plan_text(self, planned: _Planned) -> None:
        move = planned.move
        session = move.played.sessions.get(self._game)
        if session is None:
            why = move.played.problem or "there is nothing to play in."
            planned.answers[0] = Answer(f"The game can't go on: {why}", ToolError.UNAVAILABLE, failed=True)
            return
        step = Step(_saying(session, move.text), self._limits.call_s)
        planned.tasks.append((Task([step], deadline=move.deadline, leave=session.close), [0]))

    def _refusal(self, move: Move, number: int, call: Call) -> Answer | None:
        if number >= self._limits.calls:
            most = f"{self._limits.calls} call{'s' if self._limits.calls != 1 else ''}"
            return Answer(f"Not carried out: at most {most} in one turn.", ToolError.LIMIT)
        if call.unreadable:
            return Answer(_UNREADABLE, ToolError.UNREADABLE)
        part = self._of_tool.get(call.name)
        if part is None:
            known = ", ".join(self._of_tool) or "none"
            return Answer(f"There is no tool called {call.name[:100]!r}. The tools are: {known}.", ToolError.UNKNOWN)
        if move.played.sessions.get(part) is None and not self._reopened(move.played, part):
            why = move.played.missing.get(part, "it has ended.")
            failed = part in self._stateful
            return Answer(f"{call.name} is not available: {why}", ToolError.UNAVAILABLE, failed=failed)
        wrong = arguments.problem(self._tool[call.name], arguments.read(call.arguments))
        return Answer(wrong, ToolError.ARGUMENTS) if wrong else None

    def _reopened(self, played: Played, part: str) -> bool:
        """A tool keeps nothing between calls, so that another session does after one was left behind."""
        if part in self._stateful or part in played.missing:
            return False
        number = next(number for number, (one, _, _) in enumerate(self._parts) if one.name == part)
        opening = _Opening(self, number, {}, 0, reset=False)
        task = Task([Step(opening.run, self._limits.call_s)], leave=opening.close)
        run([task], at_once=1)
        value = task.results[0].value
        if isinstance(value, BaseException):
            self._lose(played, part, f"it can't be opened: {_words(value)}")
            return False
        played.sessions[part] = opening.session
        return True

    def _collected(self, planned: _Planned) -> list[Answer]:
        for task, numbers in planned.tasks:
            over = ""
            for number, done in zip(numbers, task.results, strict=True):
                answer = self._answer(planned.move, number, done)
                if over and not answer.failed:
                    answer = Answer(over, ToolError.UNAVAILABLE)
                planned.answers[number] = answer
                over = over or ("The episode is over." if answer.done else "")
        return [one if one is not None else Answer("", ToolError.UNAVAILABLE) for one in planned.answers]

    def _answer(self, move: Move, number: int, done: Done) -> Answer:
        """What came of a call, or of the model's text."""
        value, seconds = done.value, done.seconds
        called = move.calls[number].name if move.calls else ""
        part = self._of_tool[called] if called else self._game
        stateful = part in self._stateful
        if isinstance(value, Left):
            if move.played.sessions.get(part) is not None:
                move.played.sessions[part] = None  # closed by the task's `leave`
                if stateful:
                    self._lose(move.played, part, "it took too long.")
            who, limit = called or "The game", self._limits.call_s
            took = f"took longer than {limit:g} s" if seconds >= limit else "had no time left in this episode"
            return Answer(f"{who} {took}, and was stopped.", ToolError.TIMEOUT, seconds, failed=stateful)
        if isinstance(value, BaseException):
            error = _error_of(value)
            return Answer(f"{called or 'The game'} failed: {_words(value)}", error, seconds, failed=not called)
        kind = Result if called else Observation
        if not isinstance(value, kind):
            text = f"{called or 'The game'} failed: it gave {type(value).__name__}, which is no answer."
            return Answer(text, ToolError.RAISED, seconds, failed=stateful)
        return self._read(value, called or "The game", seconds)

    def _read(self, value: Result | Observation, who: str, seconds: float) -> Answer:
        error = str(value.error) if value.error else ""
        text = value.text if isinstance(value.text, str) else str(value.text)
        if len(text) > MOST_CHARACTERS:
            text, error = f"{who} answered {len(text):,} characters, which is too much to read.", ToolError.OUTPUT
        text = text[: self._limits.output_tokens * CHARACTERS_PER_TOKEN]
        reward, failed = value.reward, False
        if reward is not None:
            failed = isinstance(reward, str) or not _finite(reward)
            reward = None if failed else float(reward)
        return Answer(text, error, seconds, reward, bool(value.done), failed)


@dataclass
class _Planned:
    move: Move
    answers: list[Answer | None]
    tasks: list[tuple[Task, list[int]]]
    """With the numbers of the calls that their steps are."""


class _Opening:
    """One part's session for one episode, opened in another thread."""

    def __init__(
        self, executor: Executor, number: int, row: Mapping[str, Any], seed: int, *, reset: bool = True
    ) -> None:
        self._part, self._entry, self._params = executor._parts[number]
        self._kit, self._row, self._seed, self._reset = executor._tools, row, seed, reset
        self._left = False
        self.session: Session | None = None
        self.tools: list[ToolDescription] = []
        self.text = ""

    def run(self, seconds: float) -> None:
        self.session = self._entry.open(self._part.name, self._params, self._kit)
        if self._left:
            self.close()
            return
        text = self.session.reset(self._row, self._seed) if self._reset else ""
        self.text = text[:LONGEST_OPENING] if isinstance(text, str) else ""
        self.tools = list(self.session.tools())

    def close(self) -> None:
        self._left = True
        if self.session is not None:
            _closing(self.session)(0.0)


def _entry_of(part: PartSpec, library: Mapping[str, Entry]) -> tuple[Entry, Any]:
    entry = library.get(part.function)
    if entry is None:
        raise Unusable(f"There is no tool or environment {part.function!r} here.")
    if problems := entry.check(part.params):
        raise Unusable(f"{entry.title} ({part.name}): {'; '.join(problems)}.")
    return entry, entry.build(part.params)


def _calling(session: Session, call: Call) -> Any:
    return lambda seconds: session.call(call.name, arguments.read(call.arguments), seconds)


def _saying(session: Session, text: str) -> Any:
    return lambda seconds: session.answer(text, seconds)


def _closing(session: Session) -> Any:
    def close(seconds: float) -> None:
        try:
            session.close()
        except Exception:  # noqa: S110  # it is gone either way, and nobody waits for it
            pass

    return close


def _plain(tools: Sequence[ToolDescription]) -> list[str]:
    return [json.dumps(one.as_dict(), sort_keys=True, default=str) for one in tools]


def _error_of(error: BaseException) -> ToolError:
    if isinstance(error, Unavailable | SandboxUnavailable):
        return ToolError.UNAVAILABLE
    return ToolError.TIMEOUT if isinstance(error, TimeoutError) else ToolError.RAISED


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    if isinstance(error, Unavailable | SandboxUnavailable | Left):
        return text
    return f"{type(error).__name__}: {text}" if text else f"{type(error).__name__}."


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False
