"""Branches of a session: each answer with all tokens before it, so that several requests become one episode.

A request that begins with everything up to an earlier answer continues that branch: the tokens that the model wrote are
kept, those of the new messages are appended, and nothing is tokenized again. Any other request begins a new branch, and
so does every request if the chat template changes earlier messages once later ones follow. The branch with the most
tokens written by the model is the session's episode.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Episode, Message, ModelTurn

if TYPE_CHECKING:
    from workers.trainer.episodes.templates import Chat

_PLAIN = ("role", "name", "content")


@dataclass(frozen=True)
class Branch:
    """A sequence of requests and answers. Immutable, so that two requests may continue the same branch."""

    messages: tuple[Message, ...] = ()
    """All messages in the form in which clients send them back (see `plain`)."""
    prompt: tuple[Message, ...] = ()
    tools: str = ""
    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    turns: tuple[ModelTurn, ...] = ()
    versions: frozenset[int] = frozenset()
    """Versions of the policies that wrote it."""
    full: bool = False
    """True if the last answer was cut off at its token limit."""
    has_logprobs: bool = True

    @property
    def all_ids(self) -> list[int]:
        return [*self.prompt_ids, *self.ids]

    def extended(self, suffix: Sequence[int], answers: Sequence[Message]) -> "Branch":
        """Append the tokens that follow the model's last message; they carry no loss."""
        last = self.turns[-1]
        return replace(
            self,
            ids=(*self.ids, *suffix),
            own=(*self.own, *[0] * len(suffix)),
            logprobs=(*self.logprobs, *[0.0] * len(suffix)),
            turns=(*self.turns[:-1], replace(last, answers=list(answers))),
        )

    def answered(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float | None] | None,
        message: Message,
        sent: Message,
        *,
        version: int,
        full: bool,
    ) -> "Branch":
        """Append the model's answer. `sent`: the message as the client will send it back."""
        start = len(self.ids)
        turn = ModelTurn(start, start + len(ids), {**message, "tokens": len(ids)})
        return replace(
            self,
            messages=(*self.messages, plain(sent)),
            ids=(*self.ids, *ids),
            own=(*self.own, *[1] * len(ids)),
            logprobs=(*self.logprobs, *(logprobs if logprobs is not None else [0.0] * len(ids))),
            turns=(*self.turns, turn),
            versions=self.versions | {version},
            full=full,
            has_logprobs=self.has_logprobs and logprobs is not None,
        )


@dataclass
class Branches:
    """The branches of one session."""

    all: list[Branch] = field(default_factory=list)
    leaves: set[int] = field(default_factory=set)
    """Indexes of branches that no other continues."""

    def chat(self, chat: "Chat", messages: Sequence[Message], tools: str, ends: frozenset[int]) -> tuple[Branch, int]:
        """Find the branch of a chat request before its answer, and the number of the one it continues (-1: none)."""
        plain_messages = tuple(plain(message) for message in messages)
        number = self._continued(lambda branch: branch.tools == tools and _begins(plain_messages, branch.messages))
        if number >= 0:
            before = self.all[number]
            new = [_with_name(message, before.messages) for message in plain_messages[len(before.messages) :]]
            suffix = _suffix(chat, new, ended=bool(before.ids) and before.ids[-1] in ends)
            if suffix:
                chat.count(new, len(suffix))
                return replace(before.extended(suffix, new), messages=plain_messages), number
        shown = [_with_name(message, plain_messages) for message in plain_messages]
        ids = tuple(chat.prompt_ids(shown))
        return Branch(plain_messages, tuple(shown), tools, ids), -1

    def text(self, ids: Sequence[int], shown: str, decode: Any) -> tuple[Branch, int]:
        """Find the same for a prompt of tokens without roles."""
        prompt = list(ids)
        number = self._continued(lambda branch: _begins(prompt, branch.all_ids))
        if number >= 0:
            before = self.all[number]
            suffix = prompt[len(before.all_ids) :]
            answer = {"role": "user", "content": decode(suffix), "tokens": len(suffix)}
            return before.extended(suffix, [answer]), number
        return Branch(prompt=({"role": "user", "content": shown},), prompt_ids=tuple(prompt)), -1

    def add(self, branch: Branch, number: int) -> None:
        """Add a branch that continues an earlier one (-1: none)."""
        self.leaves.discard(number)
        self.leaves.add(len(self.all))
        self.all.append(branch)

    def longest(self) -> Branch | None:
        return max(self.all, key=lambda branch: sum(branch.own), default=None)

    @property
    def dropped(self) -> int:
        """The number of branches that aren't trained on."""
        return max(len(self.leaves) - 1, 0)

    def _continued(self, fits: Callable[[Branch], bool]) -> int:
        fitting = [number for number, branch in enumerate(self.all) if fits(branch)]
        return max(fitting, key=lambda number: len(self.all[number].ids), default=-1)


def episode(
    branch: Branch | None, row: Mapping[str, Any], prompt: Any, prompt_ids: Sequence[int], *, filler: int
) -> Episode:
    """Convert a branch into an episode.

    `branch` None: the model wrote nothing. The episode then has the task's prompt, and `filler` as only token, which
    carries no loss.
    """
    if branch is None:
        turn = ModelTurn(0, 1, {"role": "assistant", "content": "", "tokens": 0})
        return Episode(row, 0, prompt, list(prompt_ids), [filler], [0], [0.0], [turn])
    turns = [
        replace(turn, message=dict(turn.message), answers=[dict(answer) for answer in turn.answers])
        for turn in branch.turns
    ]
    prompt = [dict(message) for message in branch.prompt]
    logprobs = list(branch.logprobs) if branch.has_logprobs else []
    return Episode(row, 0, prompt, list(branch.prompt_ids), list(branch.ids), list(branch.own), logprobs, turns)


def plain(message: Mapping[str, Any]) -> Message:
    """Normalise a message, for comparison with one that a client sends back, and for chat templates."""
    content = message.get("content")
    if isinstance(content, list):  # parts, of which only text is used
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    result: Message = {"role": str(message.get("role", "user")), "content": content or ""}
    if calls := message.get("tool_calls"):
        result["tool_calls"] = [_plain_call(call) for call in calls]
        result["ids"] = [call.get("id") for call in calls]
    for name in ("name", "tool_call_id"):
        if message.get(name):
            result[name] = message[name]
    return result


def _plain_call(call: Mapping[str, Any]) -> Message:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"text": arguments}
    return {"type": "function", "function": {"name": function.get("name", ""), "arguments": arguments}}


def _begins(whole: Sequence[Any], part: Sequence[Any]) -> bool:
    return bool(part) and len(whole) > len(part) and _without_ids(whole[: len(part)]) == _without_ids(part)


def _without_ids(items: Sequence[Any]) -> list[Any]:
    """Remove call ids, which clients may leave out."""
    return [{k: v for k, v in item.items() if k != "ids"} if isinstance(item, dict) else item for item in items]


def _suffix(chat: "Chat", new: Sequence[Message], *, ended: bool) -> list[int]:
    """Tokenize new messages after a branch; empty if the branch's tokens would change."""
    if any(message["role"] == "assistant" for message in new):
        return []
    try:
        return chat.answer_ids(new, ended=ended)
    except SpecError:
        return []


def _with_name(message: Message, before: Sequence[Message]) -> Message:
    """Add the tool's name to a result, for templates; clients send the call's id only."""
    result = {name: message[name] for name in (*_PLAIN, "tool_calls") if name in message}
    if message["role"] == "tool" and "name" not in result:
        calls = [
            (call_id, call)
            for earlier in before
            for call_id, call in zip(earlier.get("ids", []), earlier.get("tool_calls", []), strict=False)
        ]
        names = [call["function"]["name"] for call_id, call in calls if call_id == message.get("tool_call_id")]
        result["name"] = names[-1] if names else "tool"
    return result
