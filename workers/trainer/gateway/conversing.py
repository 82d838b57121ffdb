"""Conversion between requests and tokens: renders chats, limits completions to the context, and parses them."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes import templates
from workers.trainer.episodes.generation import TurnRequest
from workers.trainer.episodes.templates import Chat
from workers.trainer.gateway.branches import Branch
from workers.trainer.gateway.engine import PolicyEngine, PolicyTurn
from workers.trainer.gateway.sessions import AgentSession
from workers.trainer.keyed_endpoint import HttpRefusal
from workers.trainer.openai_shapes import AgentRequest, ResponseHead, usage_of, with_call_ids

P = ParamSpec("P")
R = TypeVar("R")
_MAX_TOOL_SETS = 256
_NO_ROOM = "context_length_exceeded"


class Conversing:
    """Converter that responds to requests of sessions with an engine's completions."""

    def __init__(
        self, tokenizer: Any, template: str, arguments: Mapping[str, Any], *, max_tokens: int, count_outputs: bool
    ) -> None:
        """Create the converter. `template`: the name of one of TRL's templates, or "" for the tokenizer's own.
        `max_tokens`: the maximum number of an episode's tokens."""
        self._tokenizer, self._name, self._arguments = tokenizer, template, arguments
        self._chats: dict[str, Chat] = {}
        self.longest = max_tokens
        self._count_outputs = count_outputs
        self._vocabulary = len(tokenizer)
        self.context = 1 << 20
        self.ends: frozenset[int] = frozenset()
        self.model = ""
        # One thread, since tokenizers and sessions' branches aren't made for several.
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizing")

    async def aside(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that tokenizes, renders or decodes, in a thread: other agents are answered meanwhile."""
        work = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, work)

    @property
    def filler(self) -> int:
        return int(self._tokenizer.eos_token_id)

    def check(self) -> None:
        """Raise SpecError if the chat template can't render chats."""
        self._choose(())

    def _choose(self, tools: Sequence[Mapping[str, Any]]) -> Chat:
        return templates.choose(self._tokenizer, self._name, tools, game=True, arguments=self._arguments, strict=False)

    def has_ended(self, ids: Sequence[int]) -> bool:
        return bool(ids) and ids[-1] in self.ends

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def check_tokens(self, ids: Sequence[int]) -> None:
        """Raise SpecError unless the model has all these tokens: generating or training with others would end the
        trainer."""
        if ids and not (min(ids) >= 0 and max(ids) < self._vocabulary):
            unknown = next(token for token in ids if not 0 <= token < self._vocabulary)
            raise SpecError(f"There is no token {unknown}: the model has {self._vocabulary:,} tokens.")

    def text_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt without roles. Raises HttpRefusal if it can't be tokenized or has unknown
        tokens."""
        with _as_refusals("The prompt can't be tokenized"):
            ids = self._encode(prompt) if isinstance(prompt, str) else list(prompt)
            self.check_tokens(ids)
            return ids

    def prompt_ids(self, prompt: Any) -> list[int]:
        return self._encode(prompt) if isinstance(prompt, str) else self.chat().prompt_ids(prompt)

    def chat(self, tools: Sequence[Mapping[str, Any]] = ()) -> Chat:
        """Return the chat for these tools, from a cache. Raises HttpRefusal if the template can't render them."""
        key = json.dumps(tools, sort_keys=True)
        if key not in self._chats:
            with _as_refusals("The chat template can't render these tools"):
                chat = self._choose(tools)
            if len(self._chats) >= _MAX_TOOL_SETS:
                self._chats.clear()
            self._chats[key] = chat
        return self._chats[key]

    async def respond(self, request: AgentRequest, session: AgentSession, engine: PolicyEngine) -> dict[str, Any]:
        """Return a response in OpenAI's format, and add it to the session's branches. Raises HttpRefusal if the request
        can't be rendered, leaves no room for a response, or isn't answered by the engine."""
        chat, branch, number = await self.aside(self._begin, request, session)
        turn = await self._complete(branch, request.limit, session.id, engine)
        return await self.aside(self._end, session, chat, branch, number, turn)

    def _begin(self, request: AgentRequest, session: AgentSession) -> tuple[Chat | None, Branch, int]:
        chat = self.chat(request.tools) if request.messages else None
        return chat, *self._branch(request, session, chat)

    def _end(
        self, session: AgentSession, chat: Chat | None, branch: Branch, number: int, turn: PolicyTurn
    ) -> dict[str, Any]:
        before = branch.all_ids
        if chat is None:
            message = client_message = {"role": "assistant", "content": self.decode(turn.ids)}
            choice: dict[str, Any] = {"text": message["content"]}
        else:
            message = chat.parse(turn.ids, before)
            client_message = with_call_ids(message, f"{session.id[:6]}{len(session.branches.all)}")
            choice = {"message": client_message}
        extended = branch.with_response(
            turn.ids, turn.logprobs, message, client_message, version=turn.version, full=turn.full
        )
        session.branches.add(extended, number)
        choice["finish_reason"] = "tool_calls" if "tool_calls" in message else "length" if turn.full else "stop"
        return ResponseHead(chat is not None, self.model).document([choice], usage_of(len(before), len(turn.ids)))

    def _branch(self, request: AgentRequest, session: AgentSession, chat: Chat | None) -> tuple[Branch, int]:
        """Return the branch before the response, and the number of the one that it continues, or -1."""
        if chat is not None:
            with _as_refusals("The chat template can't render these messages"):
                tools = json.dumps(request.tools, sort_keys=True)
                return session.branches.chat(chat, request.messages, tools, self.ends)
        ids = self.text_ids(request.prompt)
        content = request.prompt if isinstance(request.prompt, str) else self._tokenizer.decode(ids)
        return session.branches.text(ids, content, self._tokenizer.decode)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    async def _complete(self, branch: Branch, limit: int | None, key: str, engine: PolicyEngine) -> PolicyTurn:
        room = self.context - len(branch.prompt_ids) - len(branch.ids)
        used_tokens = len(branch.ids) if self._count_outputs else sum(branch.own)
        limit_of_turn = min(self.longest - used_tokens, room)
        if limit_of_turn < 1:
            reason = f"The episode has {used_tokens} of at most {self.longest} tokens, and the model's context holds "
            raise HttpRefusal(
                400, f"{reason}{self.context}, so there is no room for a response. End the session.", _NO_ROOM
            )
        limit_of_turn = limit_of_turn if limit is None else min(limit_of_turn, limit)
        turn = await engine.complete(TurnRequest(branch.all_ids, limit_of_turn, room), key)
        return replace(turn, full=turn.full and not self.has_ended(turn.ids))


@contextmanager
def _as_refusals(problem: str) -> Iterator[None]:
    """Raise every error of the block as an HttpRefusal, since templates and tokenizers raise many types for odd
    values."""
    try:
        yield
    except SpecError as error:
        raise HttpRefusal(400, str(error)) from None
    except Exception as error:
        raise HttpRefusal(400, f"{problem}: {str(error)[:300] or type(error).__name__}") from None
