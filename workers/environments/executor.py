"""Execution of the environment's side of episodes: opens their sessions, and runs all calls of a turn concurrently.

The trainer's rollouts and the control plane's playground use it. Faults of a session (it blocks, raises, returns 10 MB
or NaN, ends early, or lists other tools than before) become a sentence for the model or end that episode, but never
raise an exception here. Results have the calls' order.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from workers.contract.run.episodes import EpisodeLimits, PartSpec, ToolError
from workers.environments import arguments
from workers.environments.concurrent_steps import StepAbandoned, StepResult, StepSequence, TimedStep, run
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.environments.library import LIBRARY
from workers.rewards.tools import Tools, Unavailable
from workers.sandbox.outcomes import SandboxUnavailable

MAX_CHARACTERS = 1_000_000
"""Maximum length of a result; a longer one is an error."""
CHARACTERS_PER_TOKEN = 16
"""Number of characters kept for each token of a result's limit, before the result is tokenized."""
MAX_OPENING_LENGTH = 100_000
MIN_OPENING_S = 60.0
"""Minimum time-out for opening and resetting an episode's sessions, of which the first may start a program."""
CLOSING_S = 5.0
_UNREADABLE = (
    "Your call can't be parsed, and nothing was called. Write it again in exactly the form that you were told, with "
    "the name of a tool and its arguments as an object."
)


class Unusable(Exception):
    """Failure to use an environment, with the reason for people."""


@dataclass(frozen=True)
class Call:
    """A call as the model wrote it; the arguments may be anything."""

    name: str
    arguments: Any
    unreadable: bool = False
    """True if the model began a call that can't be parsed."""


@dataclass(frozen=True)
class EnvironmentAnswer:
    """Response to a call, or to the model's text."""

    text: str
    error: str = ""
    """Value of ToolError, or ""."""
    seconds: float = 0.0
    reward: float | None = None
    done: bool = False
    failed: bool = False
    """True if the environment broke, so that the episode can't continue."""


@dataclass
class OpenEpisode:
    sessions: dict[str, EpisodeSession | None]
    """Sessions by their parts' names; None if one couldn't be opened or was abandoned."""
    opening: str = ""
    problem: str = ""
    """Why the episode can't continue; "" if it can."""
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons why parts have no session, by the parts' names."""


@dataclass(frozen=True)
class Move:
    """The model's actions in one turn."""

    episode: OpenEpisode
    calls: Sequence[Call] = ()
    text: str = ""
    """Message to the game, if there are no calls."""
    deadline: float = float("inf")


class Executor:
    """Owner of the episodes' sessions, which it opens, calls and closes in threads, one round at a time."""

    def __init__(
        self, parts: Sequence[PartSpec], limits: EpisodeLimits, tools: Tools, *, library: Mapping[str, Entry] = LIBRARY
    ) -> None:
        """Open every part once to list its tools. Raises Unusable if the parts can't be opened or can't be combined."""
        self._limits = limits
        self._tools = tools
        self._parts = [(part, *_entry_of(part, library)) for part in parts]
        stateful = [part.name for part, entry, _ in self._parts if entry.kind is not EntryKind.TOOL]
        if len(stateful) > 1:
            raise Unusable(
                f"Only one part can be a game or a server, but there are {len(stateful)}: {', '.join(stateful)}."
            )
        self._game = next((part.name for part, entry, _ in self._parts if entry.kind is EntryKind.GAME), "")
        self._stateful = set(stateful)
        self._tools_of_part: dict[str, list[ToolDescription]] = {}
        self._part_of_tool: dict[str, str] = {}
        self._tool: dict[str, ToolDescription] = {}
        self._describe()

    @property
    def descriptions(self) -> list[ToolDescription]:
        return [tool for part, _, _ in self._parts for tool in self._tools_of_part[part.name]]

    @property
    def has_game(self) -> bool:
        """True if a game replies to the model's text without calls."""
        return bool(self._game)

    @property
    def keeps_state(self) -> bool:
        """True if a part has state, so that even an episode's last move matters."""
        return bool(self._stateful)

    def begin(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[OpenEpisode]:
        """Open and reset the sessions of one episode per row, and return the episodes."""
        episodes = [OpenEpisode({part.name: None for part, _, _ in self._parts}) for _ in rows]
        seconds = max(MIN_OPENING_S, self._limits.call_s)
        openings: list[tuple[OpenEpisode, str, _Opening]] = []
        for episode, row, seed in zip(episodes, rows, seeds, strict=True):
            for number, (part, _, _) in enumerate(self._parts):
                openings.append((episode, part.name, _Opening(self, number, row, seed)))
        results = self._run_openings([opening for _, _, opening in openings], seconds)
        for (episode, name, opening), value in zip(openings, results, strict=True):
            self._add_session(episode, name, opening, value)
        return episodes

    def carry_out(self, moves: Sequence[Move]) -> list[list[EnvironmentAnswer]]:
        """Execute moves, and return the responses to each: one per call or, without calls, one to the text."""
        rounds = [self._plan(move) for move in moves]
        run([task for move in rounds for task, _ in move.tasks], at_once=self._limits.at_once)
        return [self._collect(move) for move in rounds]

    def close(self, episodes: Sequence[OpenEpisode]) -> None:
        tasks = []
        for episode in episodes:
            for name, session in episode.sessions.items():
                if session is not None:
                    tasks.append(StepSequence([TimedStep(_close_function(session), CLOSING_S)]))
                    episode.sessions[name] = None
        run(tasks, at_once=self._limits.at_once)

    # --- the start ----------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        openings = [_Opening(self, number, {}, 0, reset=False) for number in range(len(self._parts))]
        results = self._run_openings(openings, MIN_OPENING_S)
        for (part, entry, _), opening, value in zip(self._parts, openings, results, strict=True):
            opening.close()
            if isinstance(value, BaseException):
                raise Unusable(f"{entry.title} ({part.name}) can't be opened: {_message(value)}")
            self._tools_of_part[part.name] = opening.tools
            for tool in opening.tools:
                self._add_tool(part, tool)

    def _run_openings(self, openings: "Sequence[_Opening]", seconds: float) -> list[Any]:
        tasks = [StepSequence([TimedStep(opening.run, seconds)], leave=opening.close) for opening in openings]
        run(tasks, at_once=self._limits.at_once)
        return [task.results[0].value for task in tasks]

    def _add_tool(self, part: PartSpec, tool: ToolDescription) -> None:
        if tool.name in self._part_of_tool:
            raise Unusable(f"Two tools are called {tool.name!r}, so a model could not tell them apart.")
        if problem := arguments.schema_problem(tool):
            raise Unusable(problem)
        self._part_of_tool[tool.name] = part.name
        self._tool[tool.name] = tool

    def _add_session(self, episode: OpenEpisode, name: str, opening: "_Opening", value: Any) -> None:
        if isinstance(value, BaseException):
            reason = f"it can't be opened: {_message(value)}"
        elif _as_json(opening.tools) != _as_json(self._tools_of_part[name]):
            reason = "its tools are not the same as at the start of the run."
        else:
            episode.sessions[name] = opening.session
            episode.opening += opening.text
            return
        opening.close()
        self._lose_session(episode, name, reason)

    def _lose_session(self, episode: OpenEpisode, name: str, reason: str) -> None:
        episode.sessions[name] = None
        episode.missing[name] = reason
        if name in self._stateful:
            episode.problem = episode.problem or f"{name}: {reason}"

    # --- a turn ---------------------------------------------------------------------------------------------------

    def _plan(self, move: Move) -> "_PlannedMove":
        planned = _PlannedMove(move, [None] * max(len(move.calls), 1), [])
        if not move.calls:
            self._plan_text(planned)
            return planned
        sequences: dict[str, list[int]] = {}
        for number, call in enumerate(move.calls):
            refusal = self._refusal(move, number, call)
            if refusal is not None:
                planned.answers[number] = refusal
            else:
                part = self._part_of_tool[call.name]
                # A part with state gets its calls one after another.
                sequences.setdefault(part if part in self._stateful else f"{part} {number}", []).append(number)
        for numbers in sequences.values():
            part = self._part_of_tool[move.calls[numbers[0]].name]
            session = move.episode.sessions[part]
            assert session is not None  # noqa: S101  # otherwise it was refused
            steps = [TimedStep(_call_function(session, move.calls[number]), self._limits.call_s) for number in numbers]
            planned.tasks.append((StepSequence(steps, deadline=move.deadline, leave=session.close), numbers))
        return planned

    def _plan_text(self, planned: "_PlannedMove") -> None:
        move = planned.move
        session = move.episode.sessions.get(self._game)
        if session is None:
            reason = move.episode.problem or "there is no game."
            message = f"The game can't continue: {reason}"
            planned.answers[0] = EnvironmentAnswer(message, ToolError.UNAVAILABLE, failed=True)
            return
        step = TimedStep(lambda seconds: session.answer(move.text, seconds), self._limits.call_s)
        planned.tasks.append((StepSequence([step], deadline=move.deadline, leave=session.close), [0]))

    def _refusal(self, move: Move, number: int, call: Call) -> EnvironmentAnswer | None:
        if number >= self._limits.calls:
            limit = f"{self._limits.calls} call{'s' if self._limits.calls != 1 else ''}"
            return EnvironmentAnswer(f"Not carried out: at most {limit} in one turn.", ToolError.LIMIT)
        if call.unreadable:
            return EnvironmentAnswer(_UNREADABLE, ToolError.UNREADABLE)
        part = self._part_of_tool.get(call.name)
        if part is None:
            names = ", ".join(self._part_of_tool) or "none"
            message = f"There is no tool called {call.name[:100]!r}. The tools are: {names}."
            return EnvironmentAnswer(message, ToolError.UNKNOWN)
        if move.episode.sessions.get(part) is None and not self._reopen(move.episode, part, move.deadline):
            reason = move.episode.missing.get(part, "it has ended.")
            is_failed = part in self._stateful
            return EnvironmentAnswer(f"{call.name} is not available: {reason}", ToolError.UNAVAILABLE, failed=is_failed)
        problem = arguments.problem(self._tool[call.name], arguments.read(call.arguments))
        return EnvironmentAnswer(problem, ToolError.ARGUMENTS) if problem else None

    def _reopen(self, episode: OpenEpisode, part: str, deadline: float) -> bool:
        """Open a new session of a tool, which has no state, after one was abandoned; return whether that succeeded
        before the episode's deadline."""
        if part in self._stateful or part in episode.missing:
            return False
        seconds = min(self._limits.call_s, deadline - time.monotonic())
        if seconds <= 0:
            self._lose_session(episode, part, "no time was left in this episode to open it again.")
            return False
        number = next(number for number, (spec, _, _) in enumerate(self._parts) if spec.name == part)
        opening = _Opening(self, number, {}, 0, reset=False)
        [value] = self._run_openings([opening], seconds)
        if isinstance(value, BaseException):
            self._lose_session(episode, part, f"it can't be opened: {_message(value)}")
            return False
        episode.sessions[part] = opening.session
        return True

    def _collect(self, planned: "_PlannedMove") -> list[EnvironmentAnswer]:
        for task, numbers in planned.tasks:
            is_over = False
            for number, result in zip(numbers, task.results, strict=True):
                answer = self._answer(planned.move, number, result)
                if is_over and not answer.failed:
                    answer = EnvironmentAnswer("The episode is over.", ToolError.UNAVAILABLE)
                planned.answers[number] = answer
                is_over = is_over or answer.done
        return [answer or EnvironmentAnswer("", ToolError.UNAVAILABLE) for answer in planned.answers]

    def _answer(self, move: Move, number: int, result: StepResult) -> EnvironmentAnswer:
        value, seconds = result.value, result.seconds
        called = move.calls[number].name if move.calls else ""
        subject = called or "The game"
        part = self._part_of_tool[called] if called else self._game
        has_state = part in self._stateful
        if isinstance(value, StepAbandoned):
            if move.episode.sessions.get(part) is not None:
                move.episode.sessions[part] = None  # closed by the task's `leave`
                if has_state:
                    self._lose_session(move.episode, part, "it took too long.")
            limit = self._limits.call_s
            delay = f"took longer than {limit:g} s" if seconds >= limit else "had no time left in this episode"
            return EnvironmentAnswer(
                f"{subject} {delay}, and was stopped.", ToolError.TIMEOUT, seconds, failed=has_state
            )
        if isinstance(value, BaseException):
            message = f"{subject} failed: {_message(value)}"
            return EnvironmentAnswer(message, _error_kind(value), seconds, failed=not called)
        if not isinstance(value, Result):
            message = f"{subject} failed: it returned {type(value).__name__}, which is not a result."
            return EnvironmentAnswer(message, ToolError.RAISED, seconds, failed=has_state)
        return self._check_result(value, subject, seconds)

    def _check_result(self, value: Result, subject: str, seconds: float) -> EnvironmentAnswer:
        error = str(value.error) if value.error else ""
        text = value.text if isinstance(value.text, str) else str(value.text)
        if len(text) > MAX_CHARACTERS:
            text, error = f"{subject} returned {len(text):,} characters, which is too many.", ToolError.OUTPUT
        text = text[: self._limits.output_tokens * CHARACTERS_PER_TOKEN]
        reward, is_failed = value.reward, False
        if reward is not None:
            try:
                is_failed = isinstance(reward, str) or not math.isfinite(reward)
            except (TypeError, OverflowError):
                is_failed = True
            reward = None if is_failed else float(reward)
        return EnvironmentAnswer(text, error, seconds, reward, bool(value.done), is_failed)


@dataclass
class _PlannedMove:
    move: Move
    answers: list[EnvironmentAnswer | None]
    tasks: list[tuple[StepSequence, list[int]]]
    """Sequences, each with the numbers of the calls that its steps make."""


class _Opening:
    """The opening of one part's session for one episode, in another thread."""

    def __init__(
        self, executor: Executor, number: int, row: Mapping[str, Any], seed: int, *, reset: bool = True
    ) -> None:
        self._part, self._entry, self._params = executor._parts[number]
        self._tools, self._row, self._seed, self._reset = executor._tools, row, seed, reset
        self._is_left = False
        self.session: EpisodeSession | None = None
        self.tools: list[ToolDescription] = []
        self.text = ""

    def run(self, seconds: float) -> None:
        self.session = self._entry.open(self._part.name, self._params, self._tools)
        if self._is_left:
            self.close()
            return
        text = self.session.reset(self._row, self._seed) if self._reset else ""
        self.text = text[:MAX_OPENING_LENGTH] if isinstance(text, str) else ""
        self.tools = list(self.session.tools())

    def close(self) -> None:
        self._is_left = True
        if self.session is not None:
            _close_function(self.session)(0.0)


def _entry_of(part: PartSpec, library: Mapping[str, Entry]) -> tuple[Entry, Any]:
    entry = library.get(part.function)
    if entry is None:
        raise Unusable(f"There is no tool or environment {part.function!r} here.")
    if problems := entry.check(part.params):
        raise Unusable(f"{entry.title} ({part.name}): {'; '.join(problems)}.")
    return entry, entry.build(part.params)


def _call_function(session: EpisodeSession, call: Call) -> Any:
    return lambda seconds: session.call(call.name, arguments.read(call.arguments), seconds)


def _close_function(session: EpisodeSession) -> Any:
    def close(seconds: float) -> None:
        with suppress(Exception):  # it is gone either way
            session.close()

    return close


def _as_json(tools: Sequence[ToolDescription]) -> list[str]:
    return [json.dumps(tool.as_dict(), sort_keys=True, default=str) for tool in tools]


def _error_kind(error: BaseException) -> ToolError:
    if isinstance(error, Unavailable | SandboxUnavailable):
        return ToolError.UNAVAILABLE
    return ToolError.TIMEOUT if isinstance(error, TimeoutError) else ToolError.RAISED


def _message(error: BaseException) -> str:
    message = " ".join(str(error).split())[:300]
    if isinstance(error, Unavailable | SandboxUnavailable | StepAbandoned):
        return message
    return f"{type(error).__name__}: {message}" if message else f"{type(error).__name__}."
