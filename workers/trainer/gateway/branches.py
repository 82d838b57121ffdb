"""What a session has asked so far: each answer with all tokens before it, so that several requests become one episode.

A request that begins with everything that an earlier one ended with goes on from that one: its tokens are those that
the model wrote, with those of the new messages behind them, and nothing is tokenized again. Any other request begins a
branch of its own, as each does where the chat template changes earlier messages once later ones follow. The branch with
the most tokens of the model is the session's episode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Episode, Message, Turn

if TYPE_CHECKING:
    from workers.trainer.episodes.templates import Chat

_PLAIN = ("role", "name", "content")


@dataclass(frozen=True)
class Branch:
    """One line of requests and answers; never changed, so that two requests may go on from the same."""

    messages: tuple[Message, ...] = ()
    """All of them, as clients send them back (see `plain`)."""
    prompt: tuple[Message, ...] = ()
    tools: str = ""
    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    turns: tuple[Turn, ...] = ()
    versions: frozenset[int] = frozenset()
    """Of the policies that wrote it."""
    full: bool = False
    """Its last answer was cut off, as no more tokens were allowed."""
    has_logprobs: bool = True

    @property
    def every_id(self) -> list[int]:
        return [*self.prompt_ids, *self.ids]

    def asked_more(self, suffix: Sequence[int], answers: Sequence[Message]) -> Branch:
        """With what follows the model's last message, which takes no part in the loss."""
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
    ) -> Branch:
        """`sent`: the message as the client will send it back."""
        start = len(self.ids)
        turn = Turn(start, start + len(ids), {**message, "tokens": len(ids)})
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
    """Those of one session."""

    made: list[Branch] = field(default_factory=list)
    leaves: set[int] = field(default_factory=set)
    """Indexes of those from which nothing goes on."""

    def chat(self, chat: Chat, messages: Sequence[Message], tools: str, ends: frozenset[int]) -> tuple[Branch, int]:
        """What is asked now, before its answer, and the index of the branch it goes on from (-1: none)."""
        told = tuple(plain(message) for message in messages)
        place = self._goes_on_from(lambda one: one.tools == tools and _begins(told, one.messages))
        if place >= 0:
            before = self.made[place]
            new = [_with_name(one, before.messages) for one in told[len(before.messages) :]]
            suffix = _suffix(chat, new, ended=bool(before.ids) and before.ids[-1] in ends)
            if suffix:
                asked = before.asked_more(suffix, _counted(new, chat, len(suffix)))
                return replace(asked, messages=told), place
        shown = [_with_name(one, told) for one in told]
        ids = tuple(chat.prompt_ids(shown))
        return Branch(told, tuple(shown), tools, ids), -1

    def text(self, ids: Sequence[int], shown: str, decode: Any) -> tuple[Branch, int]:
        """The same for a text without roles."""
        asked = list(ids)
        place = self._goes_on_from(lambda one: _begins(asked, one.every_id))
        if place >= 0:
            before = self.made[place]
            suffix = asked[len(before.every_id) :]
            answer = {"role": "user", "content": decode(suffix), "tokens": len(suffix)}
            return before.asked_more(suffix, [answer]), place
        return Branch(prompt=({"role": "user", "content": shown},), prompt_ids=tuple(asked)), -1

    def add(self, branch: Branch, place: int) -> None:
        self.leaves.discard(place)
        self.leaves.add(len(self.made))
        self.made.append(branch)

    def longest(self) -> Branch | None:
        return max(self.made, key=lambda one: sum(one.own), default=None)

    def _goes_on_from(self, fits: Any) -> int:
        fitting = [place for place, one in enumerate(self.made) if fits(one)]
        return max(fitting, key=lambda place: len(self.made[place].ids), default=-1)


def episode(
    branch: Branch | None, row: Mapping[str, Any], prompt: Any, prompt_ids: Sequence[int], *, filler: int
) -> Episode:
    """`filler`: a token for an episode in which the model wrote nothing; it carries no loss. `prompt` and `prompt_ids`
    are then the task's."""
    if branch is None:
        turn = Turn(0, 1, {"role": "assistant", "content": "", "tokens": 0})
        return Episode(row, 0, prompt, list(prompt_ids), [filler], [0], [0.0], [turn])
    turns = [
        replace(turn, message=dict(turn.message), answers=[dict(one) for one in turn.answers]) for turn in branch.turns
    ]
    prompt = [dict(message) for message in branch.prompt]
    logprobs = list(branch.logprobs) if branch.has_logprobs else []
    return Episode(row, 0, prompt, list(branch.prompt_ids), list(branch.ids), list(branch.own), logprobs, turns)


def plain(message: Mapping[str, Any]) -> Message:
    """A message as it is compared with one that a client sends back, and as a template takes it."""
    content = message.get("content")
    if isinstance(content, list):  # parts, of which only texts are taken
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    made: Message = {"role": str(message.get("role", "user")), "content": content or ""}
    if calls := message.get("tool_calls"):
        made["tool_calls"] = [_plain_call(call) for call in calls]
        made["ids"] = [call.get("id") for call in calls]
    for name in ("name", "tool_call_id"):
        if message.get(name):
            made[name] = message[name]
    return made


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
    return bool(part) and len(whole) > len(part) and _same(whole[: len(part)]) == _same(part)


def _same(items: Sequence[Any]) -> list[Any]:
    """Without ids: a client may leave them out."""
    return [{k: v for k, v in one.items() if k != "ids"} if isinstance(one, dict) else one for one in items]


def _suffix(chat: Chat, new: Sequence[Message], *, ended: bool) -> list[int]:
    """The tokens of new messages behind those that are there; empty if these can't stay as they are."""
    if any(one["role"] == "assistant" for one in new):
        return []
    try:
        return chat.answer_ids(new, ended=ended)
    except SpecError:
        return []


def _with_name(message: Message, before: Sequence[Message]) -> Message:
    """For a template: a result is told by its tool's name, and clients send the call's id."""
    made = {name: message[name] for name in (*_PLAIN, "tool_calls") if name in message}
    if message["role"] == "tool" and "name" not in made:
        calls = [each for one in before for each in zip(one.get("ids", []), one.get("tool_calls", []), strict=False)]
        names = [call["function"]["name"] for given, call in calls if given == message.get("tool_call_id")]
        made["name"] = names[-1] if names else "tool"
    return made


def _counted(messages: Sequence[Message], chat: Chat, tokens: int) -> list[Message]:
    """With how many of the suffix's tokens each has; the first also has what the template writes around them all."""
    counted, rest = [dict(message) for message in messages], tokens
    for message in counted[1:]:
        message["tokens"] = min(rest, chat.length(message["content"]))
        rest -= message["tokens"]
    counted[0]["tokens"] = rest
    return counted
