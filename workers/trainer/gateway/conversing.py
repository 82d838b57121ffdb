"""Conversion between requests and tokens: renders chats, limits completions to the context, and parses them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes import templates
from workers.trainer.episodes.generation import TurnRequest
from workers.trainer.episodes.templates import Chat
from workers.trainer.gateway.branches import Branch
from workers.trainer.gateway.engine import PolicyEngine, PolicyTurn
from workers.trainer.gateway.sessions import AgentSession
from workers.trainer.keyed_endpoint import HttpRefusal
from workers.trainer.openai_shapes import AgentRequest, ResponseHead, usage_of, with_call_ids

_MAX_TOOL_SETS = 256
_NO_ROOM = "context_length_exceeded"


class Conversing:
    """Converter that responds to requests of sessions with an engine's completions."""

    def __init__(
        self, tokenizer: Any, template: str, arguments: Mapping[str, Any], *, longest: int, count_outputs: bool
    ) -> None:
        """Create the converter. `template`: the name of one of TRL's templates, or "" for the tokenizer's own.
        `longest`: the maximum number of an episode's tokens."""
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
        """Check that the chat template can render chats. Raises SpecError."""
        self._choose(())

    def _choose(self, tools: Sequence[Mapping[str, Any]]) -> Chat:
        return templates.choose(self._tokenizer, self._name, tools, game=True, arguments=self._arguments, strict=False)

    def has_ended(self, ids: Sequence[int]) -> bool:
        return bool(ids) and ids[-1] in self.ends

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt_ids(self, prompt: Any) -> list[int]:
        return self._encode(prompt) if isinstance(prompt, str) else self.chat().prompt_ids(prompt)

    def chat(self, tools: Sequence[Mapping[str, Any]] = ()) -> Chat:
        """Return the chat for these tools, from a cache. Raises HttpRefusal if the template can't render them."""
        key = json.dumps(tools, sort_keys=True)
        if key not in self._chats:
            try:
                chat = self._choose(tools)
            except SpecError as error:
                raise HttpRefusal(400, str(error)) from None
            if len(self._chats) >= _MAX_TOOL_SETS:
                self._chats.clear()
            self._chats[key] = chat
        return self._chats[key]

    async def respond(self, request: AgentRequest, session: AgentSession, engine: PolicyEngine) -> dict[str, Any]:
        """Return a response in OpenAI's format, and add it to the session's branches. Raises HttpRefusal."""
        chat = self.chat(request.tools) if request.messages else None
        branch, number = self._branch(request, session, chat)
        before = branch.all_ids
        turn = await self._complete(branch, request.limit, session.id, engine)
        if chat is None:
            message = sent = {"role": "assistant", "content": self.decode(turn.ids)}
            choice: dict[str, Any] = {"text": message["content"]}
        else:
            message = chat.parse(turn.ids, before)
            sent = with_call_ids(message, f"{session.id[:6]}{len(session.branches.all)}")
            choice = {"message": sent}
        extended = branch.with_response(turn.ids, turn.logprobs, message, sent, version=turn.version, full=turn.full)
        session.branches.add(extended, number)
        choice["finish_reason"] = "tool_calls" if "tool_calls" in message else "length" if turn.full else "stop"
        return ResponseHead(chat is not None, self.model).document([choice], usage_of(len(before), len(turn.ids)))

    def _branch(self, request: AgentRequest, session: AgentSession, chat: Chat | None) -> tuple[Branch, int]:
        """Return the branch before the response, and the number of the one that it continues, or -1."""
        if chat is None:
            ids = self._encode(request.prompt) if isinstance(request.prompt, str) else list(request.prompt)
            content = request.prompt if isinstance(request.prompt, str) else self._tokenizer.decode(ids)
            return session.branches.text(ids, content, self._tokenizer.decode)
        try:
            return session.branches.chat(chat, request.messages, json.dumps(request.tools, sort_keys=True), self.ends)
        except (SpecError, ValueError, TypeError, KeyError) as error:
            raise HttpRefusal(400, f"The chat template can't render these messages: {error}") from None

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    async def _complete(self, branch: Branch, limit: int | None, key: str, engine: PolicyEngine) -> PolicyTurn:
        room = self.context - len(branch.prompt_ids) - len(branch.ids)
        used_tokens = len(branch.ids) if self._count_outputs else sum(branch.own)
        allowed = min(self.longest - used_tokens, room)
        if allowed < 1:
            why = f"The episode has {used_tokens} of at most {self.longest} tokens, and the model's context holds "
            raise HttpRefusal(
                400, f"{why}{self.context}, so there is no room for a response. End the session.", _NO_ROOM
            )
        allowed = allowed if limit is None else min(allowed, limit)
        turn = await engine.complete(TurnRequest(branch.all_ids, allowed, room), key)
        return replace(turn, full=turn.full and not self.has_ended(turn.ids))
