"""Episodes split into turns for the pages: the model's text, calls with their results, rewards and totals.

Messages may be malformed or of an older version (contract.run.episodes describes the current format). A message that
belongs to no turn is shown nevertheless, and missing numbers are omitted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from runs.engine.records import number
from runs.insight.completions.transcripts import TranscriptTurn
from runs.insight.completions.transcripts import turns as chat_turns
from workers.contract.run.episodes import ToolError

ERRORS: dict[str, str] = {
    ToolError.UNREADABLE: "unreadable call",
    ToolError.UNKNOWN: "no such tool",
    ToolError.ARGUMENTS: "wrong arguments",
    ToolError.RAISED: "raised an error",
    ToolError.TIMEOUT: "timed out",
    ToolError.OUTPUT: "too much output",
    ToolError.LIMIT: "over the call limit",
    ToolError.UNAVAILABLE: "not available",
}
SAME_CALLS, NO_CALLS = "same calls", "no calls"
MAX_UNFOLDED_CHARS = 900
MAX_UNFOLDED_LINES = 14
_WHITESPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class EpisodePart:
    """A part of a turn: text written by the model, a call, or a result."""

    turn: TranscriptTurn
    arguments: tuple[tuple[str, str], ...] = ()
    """A call's arguments if they are a mapping; otherwise `turn.text` contains them."""
    tokens: int | None = None
    seconds: float | None = None
    error: str = ""
    reward: float | None = None
    unanswered: bool = False

    @property
    def answers(self) -> bool:
        """True if the model read this part instead of writing it, so it carries no loss."""
        return self.turn.role not in ("assistant", "thinking", "call")

    @property
    def long(self) -> bool:
        return self.answers and (
            len(self.turn.text) > MAX_UNFOLDED_CHARS or self.turn.text.count("\n") >= MAX_UNFOLDED_LINES
        )

    @property
    def preview(self) -> str:
        return _WHITESPACE.sub(" ", self.turn.text[:160]).strip()


@dataclass(frozen=True)
class EpisodeTurn:
    number: int
    """The turn's number, counting from 1; 0 for the messages before the model's first message."""
    parts: tuple[EpisodePart, ...]
    tokens: int | None = None
    """Number of tokens that the model wrote, which carry the loss."""
    reward: float | None = None
    advantage: float | None = None

    @property
    def calls(self) -> tuple[EpisodePart, ...]:
        return tuple(part for part in self.parts if part.turn.role == "call")

    @property
    def failures(self) -> int:
        return sum(bool(part.error) for part in self.parts)


@dataclass(frozen=True)
class StoredEpisode:
    turns: tuple[EpisodeTurn, ...]

    @property
    def count(self) -> int:
        return sum(turn.number > 0 for turn in self.turns)

    @property
    def calls(self) -> int:
        return sum(len(turn.calls) for turn in self.turns)

    @property
    def failures(self) -> int:
        return sum(turn.failures for turn in self.turns)

    @property
    def seconds(self) -> float | None:
        """Total seconds of the calls and observations, or None if none was timed."""
        call_seconds = [part.seconds for turn in self.turns for part in turn.parts if part.seconds is not None]
        return sum(call_seconds) if call_seconds else None

    @property
    def read_share(self) -> float | None:
        """Share of the episode's tokens that the model didn't write, or None if unknown."""
        read_tokens = [part.tokens for turn in self.turns for part in turn.parts if part.answers]
        own_tokens = [turn.tokens for turn in self.turns if turn.number]
        total = sum(filter(None, (*read_tokens, *own_tokens)))
        is_unknown = not total or None in own_tokens or None in read_tokens
        return None if is_unknown else sum(filter(None, read_tokens)) / total

    @property
    def widest(self) -> float:
        """Largest absolute advantage of a turn, or 1 if no turn has one."""
        return max((abs(turn.advantage) for turn in self.turns if turn.advantage is not None), default=0.0) or 1.0


@dataclass(frozen=True)
class EpisodeFacts:
    """Properties of an episode that the completion filter tests."""

    turns: int
    calls: int = 0
    tools: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    failures: int = 0


def read(messages: Sequence[Any] | None) -> StoredEpisode | None:
    """Split a completion's messages into turns. Return None if it has a single turn without calls or rewards."""
    return by_turn(messages) if messages and _is_episode(messages) else None


def by_turn(messages: Sequence[Any]) -> StoredEpisode:
    turns: list[EpisodeTurn] = []
    for message in messages:
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            turns.append(_turn(1 + sum(turn.number > 0 for turn in turns), message))
            continue
        if not turns:
            turns.append(EpisodeTurn(0, ()))
        turns[-1] = replace(turns[-1], parts=_insert(turns[-1].parts, _reply_part(message)))
    return StoredEpisode(tuple(turns))


def facts(messages: Sequence[Any]) -> EpisodeFacts:
    """Return the properties that filters test, more cheaply than `read`, since filters go through whole runs."""
    turns, called, errors = 0, [], []
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        turns += message.get("role") == "assistant"
        called += [_name(call) for call in _calls(message)]
        if error := message.get("error"):
            errors.append(str(error))
    return EpisodeFacts(turns, len(called), frozenset(filter(None, called)), frozenset(errors), len(errors))


def full_text(messages: Sequence[Any], *, written: bool = False) -> str:
    """Join all text of an episode, including calls. With `written`, join only what the model wrote."""
    parts: list[str] = []
    for message in messages:
        if not written or (isinstance(message, Mapping) and message.get("role") == "assistant"):
            turns = chat_turns(None, [message], "assistant")
            parts += [f"{turn.name} {turn.text}" if turn.role == "call" else turn.text for turn in turns]
    return "\n".join(filter(None, parts))


@dataclass(frozen=True)
class TurnPair:
    """The same turn in two episodes of one prompt."""

    number: int
    before: EpisodeTurn | None
    after: EpisodeTurn | None
    change: str

    @property
    def same(self) -> bool:
        return self.change in (SAME_CALLS, NO_CALLS)


def pair_turns(before: StoredEpisode, after: StoredEpisode) -> list[TurnPair]:
    old_turns, new_turns = ({turn.number: turn for turn in episode.turns} for episode in (before, after))
    return [
        TurnPair(number, old := old_turns.get(number), new := new_turns.get(number), _change(old, new))
        for number in sorted({*old_turns, *new_turns} - {0})
    ]


def _change(old: EpisodeTurn | None, new: EpisodeTurn | None) -> str:
    if old is None or new is None:
        return "only later" if old is None else "only earlier"
    old_calls, new_calls = ([(call.turn.name, call.turn.text) for call in turn.calls] for turn in (old, new))
    if old_calls == new_calls:
        return SAME_CALLS if old_calls else NO_CALLS
    if not old_calls or not new_calls:
        return "calls now" if new_calls else "no longer calls"
    if [name for name, _ in old_calls] == [name for name, _ in new_calls]:
        return "other arguments"
    return "other tools" if {name for name, _ in old_calls} != {name for name, _ in new_calls} else "other calls"


# --- reading messages ------------------------------------------------------------------------------------------


def _is_episode(messages: Sequence[Any]) -> bool:
    valid_messages = [message for message in messages if isinstance(message, Mapping)]
    replies = [message for message in valid_messages if message.get("role") == "assistant"]
    if not replies:
        return False
    is_dialog = len(replies) > 1 or any(message.get("role") == "tool" for message in valid_messages)
    return is_dialog or any(_calls(m) or m.get("reward") is not None or m.get("advantage") is not None for m in replies)


def _turn(index: int, message: Mapping[str, Any]) -> EpisodeTurn:
    return EpisodeTurn(
        index,
        tuple(_written_part(turn) for turn in chat_turns(None, [message], "assistant")),
        tokens=_whole_number(message.get("tokens")),
        reward=number(message.get("reward")),
        advantage=number(message.get("advantage")),
    )


def _written_part(turn: TranscriptTurn) -> EpisodePart:
    if turn.role != "call":
        return EpisodePart(turn)
    try:
        arguments = msgspec.json.decode(turn.text)
    except (msgspec.DecodeError, RecursionError):
        arguments = None
    texts = tuple(
        (str(name), value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in (arguments.items() if isinstance(arguments, dict) else ())
    )
    return EpisodePart(turn, texts, unanswered=True)


def _reply_part(message: object) -> EpisodePart:
    """Return the part for a result, an observation or any other message that the model didn't write."""
    text = "\n\n".join(turn.text for turn in chat_turns(None, [message], "tool"))
    if not isinstance(message, Mapping):
        return EpisodePart(TranscriptTurn("tool", text))
    role, name = (str(message.get(key) or "") for key in ("role", "name"))
    turn = TranscriptTurn("observation" if role == "user" else role or "tool", text, name)
    error, seconds = message.get("error"), number(message.get("seconds"))
    return EpisodePart(
        turn,
        tokens=_whole_number(message.get("tokens")),
        seconds=seconds if seconds is not None and seconds >= 0 else None,
        error=ERRORS.get(error, str(error)) if isinstance(error, str) and error else "failed" if error else "",
        reward=number(message.get("reward")),
    )


def _insert(parts: tuple[EpisodePart, ...], reply: EpisodePart) -> tuple[EpisodePart, ...]:
    """Insert a result after the first unanswered call with the same name, and append any other part."""
    if reply.turn.role == "tool":
        for index, part in enumerate(parts):
            if part.unanswered and reply.turn.name in ("", part.turn.name):
                return (*parts[:index], replace(part, unanswered=False), reply, *parts[index + 1 :])
    return (*parts, reply)


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _name(call: object) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    return str(function.get("name") or "") if isinstance(function, Mapping) else ""


def _whole_number(value: object) -> int | None:
    figure = number(value)
    return int(figure) if figure is not None and 0 <= figure < 2**31 else None
