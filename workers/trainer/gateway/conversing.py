"""Between a request and the tokens: rendering the chat, the room that is left, and reading what the model wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes import templates
from workers.trainer.episodes.episode import Message
from workers.trainer.episodes.generation import Wanted
from workers.trainer.episodes.templates import Chat
from workers.trainer.gateway.branches import Branch, Branches
from workers.trainer.gateway.engine import PolicyAnswer, PolicyEngine
from workers.trainer.gateway.sessions import AgentSession
from workers.trainer.keyed_endpoint import Refused
from workers.trainer.openai_shapes import AgentRequest, AnswerHead, usage_of, with_call_ids

_MOST_TOOL_SETS = 256


class Conversing:
    def __init__(
        self, tokenizer: Any, template: str, arguments: Mapping[str, Any], *, longest: int, count_outputs: bool
    ) -> None:
        """`template`: of TRL by name; "": the tokenizer's own. `longest`: tokens of an episode's completion."""
        self._tokenizer, self._name, self._arguments = tokenizer, template, arguments
        self._chats: dict[str, Chat] = {}
        self.longest = longest
        self._count_outputs = count_outputs
        self.context = 1 << 20
        self.ends: frozenset[int] = frozenset()
        self.model = ""

    @property
    def filler(self) -> int:
        return int(self._tokenizer.eos_token_id)

    def check(self) -> None:
        """Raises SpecError where chats can't be shown."""
        self._choose(())

    def _choose(self, tools: Sequence[Mapping[str, Any]]) -> Chat:
        return templates.choose(self._tokenizer, self._name, tools, game=True, arguments=self._arguments, keeps=False)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt_ids(self, prompt: Any) -> list[int]:
        """Of a dataset's prompt."""
        return self._encoded(prompt) if isinstance(prompt, str) else self.chat().prompt_ids(prompt)

    def chat(self, tools: Sequence[Mapping[str, Any]] = ()) -> Chat:
        """Raises Refused where the template can't show them."""
        key = json.dumps(tools, sort_keys=True)
        if key not in self._chats:
            try:
                chat = self._choose(tools)
            except SpecError as error:
                raise Refused(400, str(error)) from None
            if len(self._chats) >= _MOST_TOOL_SETS:
                self._chats.clear()
            self._chats[key] = chat
        return self._chats[key]

    async def chat_answer(self, asked: AgentRequest, session: AgentSession, engine: PolicyEngine) -> dict[str, Any]:
        chat, tools = self.chat(asked.tools), json.dumps(asked.tools, sort_keys=True)
        try:
            branch, place = session.branches.chat(chat, asked.messages, tools, self.ends)
        except (SpecError, ValueError, TypeError, KeyError) as error:
            raise Refused(400, f"The chat template can't show these messages: {error}") from None
        before = branch.every_id
        answer = await self._answer(branch, asked.most, session.id, engine)
        message = chat.parsed(answer.ids, before)
        sent = with_call_ids(message, f"{session.id[:6]}{len(session.branches.made)}")
        # As the client will send it back, with its ids.
        told = {**message, "tool_calls": sent["tool_calls"]} if "tool_calls" in message else message
        self._add(session, branch, place, answer, message, told)
        finish = "tool_calls" if "tool_calls" in message else "length" if answer.full else "stop"
        choice = {"message": sent, "finish_reason": finish}
        return AnswerHead(True, self.model).document([choice], usage_of(len(before), len(answer.ids)))

    async def text_answer(self, asked: AgentRequest, session: AgentSession, engine: PolicyEngine) -> dict[str, Any]:
        ids = self._encoded(asked.prompt) if isinstance(asked.prompt, str) else list(asked.prompt)
        shown = asked.prompt if isinstance(asked.prompt, str) else self._tokenizer.decode(ids)
        branch, place = session.branches.text(ids, shown, self._tokenizer.decode)
        answer = await self._answer(branch, asked.most, session.id, engine)
        text = self._tokenizer.decode(answer.ids, skip_special_tokens=True)
        message: Message = {"role": "assistant", "content": text}
        self._add(session, branch, place, answer, message, message)
        choice = {"text": text, "finish_reason": "length" if answer.full else "stop"}
        return AnswerHead(False, self.model).document([choice], usage_of(len(ids), len(answer.ids)))

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    def _add(
        self, session: AgentSession, branch: Branch, place: int, answer: PolicyAnswer, message: Message, told: Message
    ) -> None:
        made = branch.answered(answer.ids, answer.logprobs, message, told, version=answer.version, full=answer.full)
        session.branches.add(made, place)

    async def _answer(self, branch: Branch, most: int | None, key: str, engine: PolicyEngine) -> PolicyAnswer:
        room = self.context - len(branch.prompt_ids) - len(branch.ids)
        used = len(branch.ids) if self._count_outputs else sum(branch.own)
        left = min(self.longest - used, room)
        if left < 1:
            words = f"The episode has {used} of at most {self.longest} tokens, and the model's context holds "
            raise Refused(400, f"{words}{self.context}: there is no room for an answer. End the session.", _LENGTH)
        allowed = left if most is None else min(left, most)
        answer = await engine.answer(Wanted(branch.every_id, allowed, room), key)
        ended = bool(answer.ids) and answer.ids[-1] in self.ends
        return PolicyAnswer(answer.ids, answer.logprobs, answer.full and not ended, answer.version)


_LENGTH = "context_length_exceeded"


def branches_dropped(branches: Branches) -> int:
    """Lines of a session that don't count."""
    return max(len(branches.leaves) - 1, 0)
