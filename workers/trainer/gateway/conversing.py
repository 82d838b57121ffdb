"""Conversion between requests and tokens: renders chats, limits answers to the context, and parses completions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes import templates
from workers.trainer.episodes.episode import Message
from workers.trainer.episodes.generation import TurnRequest
from workers.trainer.episodes.templates import Chat
from workers.trainer.gateway.branches import Branch
from workers.trainer.gateway.engine import PolicyAnswer, PolicyEngine
from workers.trainer.gateway.sessions import AgentSession
from workers.trainer.keyed_endpoint import Refused
from workers.trainer.openai_shapes import AgentRequest, AnswerHead, usage_of, with_call_ids

_MOST_TOOL_SETS = 256
_NO_ROOM = "context_length_exceeded"
"""OpenAI's error code."""


class Conversing:
    """Answers the requests of sessions with an engine's completions."""

    def __init__(
        self, tokenizer: Any, template: str, arguments: Mapping[str, Any], *, longest: int, count_outputs: bool
    ) -> None:
        """`template`: name of TRL's template; "": the tokenizer's own. `longest`: limit of an episode's tokens."""
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
        """Raise SpecError if the chat template can't render chats."""
        self._choose(())

    def _choose(self, tools: Sequence[Mapping[str, Any]]) -> Chat:
        return templates.choose(self._tokenizer, self._name, tools, game=True, arguments=self._arguments, keeps=False)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt_ids(self, prompt: Any) -> list[int]:
        """Tokenize a dataset's prompt."""
        return self._encoded(prompt) if isinstance(prompt, str) else self.chat().prompt_ids(prompt)

    def chat(self, tools: Sequence[Mapping[str, Any]] = ()) -> Chat:
        """Return the chat for these tools. Raises Refused if the template can't render them."""
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

    async def chat_answer(self, request: AgentRequest, session: AgentSession, engine: PolicyEngine) -> dict[str, Any]:
        chat, tools = self.chat(request.tools), json.dumps(request.tools, sort_keys=True)
        try:
            branch, place = session.branches.chat(chat, request.messages, tools, self.ends)
        except (SpecError, ValueError, TypeError, KeyError) as error:
            raise Refused(400, f"The chat template can't show these messages: {error}") from None
        before = branch.all_ids
        answer = await self._answer(branch, request.most, session.id, engine)
        message = chat.parsed(answer.ids, before)
        sent = with_call_ids(message, f"{session.id[:6]}{len(session.branches.all)}")
        self._add(session, branch, place, answer, message, sent)
        finish = "tool_calls" if "tool_calls" in message else "length" if answer.full else "stop"
        choice = {"message": sent, "finish_reason": finish}
        return AnswerHead(True, self.model).document([choice], usage_of(len(before), len(answer.ids)))

    async def text_answer(self, request: AgentRequest, session: AgentSession, engine: PolicyEngine) -> dict[str, Any]:
        ids = self._encoded(request.prompt) if isinstance(request.prompt, str) else list(request.prompt)
        shown = request.prompt if isinstance(request.prompt, str) else self._tokenizer.decode(ids)
        branch, place = session.branches.text(ids, shown, self._tokenizer.decode)
        answer = await self._answer(branch, request.most, session.id, engine)
        text = self._tokenizer.decode(answer.ids, skip_special_tokens=True)
        message: Message = {"role": "assistant", "content": text}
        self._add(session, branch, place, answer, message, message)
        choice = {"text": text, "finish_reason": "length" if answer.full else "stop"}
        return AnswerHead(False, self.model).document([choice], usage_of(len(ids), len(answer.ids)))

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    def _add(
        self, session: AgentSession, branch: Branch, place: int, answer: PolicyAnswer, message: Message, sent: Message
    ) -> None:
        answered = branch.answered(answer.ids, answer.logprobs, message, sent, version=answer.version, full=answer.full)
        session.branches.add(answered, place)

    async def _answer(self, branch: Branch, most: int | None, key: str, engine: PolicyEngine) -> PolicyAnswer:
        room = self.context - len(branch.prompt_ids) - len(branch.ids)
        used = len(branch.ids) if self._count_outputs else sum(branch.own)
        left = min(self.longest - used, room)
        if left < 1:
            why = f"The episode has {used} of at most {self.longest} tokens, and the model's context holds "
            raise Refused(400, f"{why}{self.context}: there is no room for an answer. End the session.", _NO_ROOM)
        allowed = left if most is None else min(left, most)
        answer = await engine.answer(TurnRequest(branch.all_ids, allowed, room), key)
        ended = bool(answer.ids) and answer.ids[-1] in self.ends
        return PolicyAnswer(answer.ids, answer.logprobs, answer.full and not ended, answer.version)
