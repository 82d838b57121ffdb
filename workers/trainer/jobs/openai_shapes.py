"""Requests and answers in the shapes of OpenAI's API: chat completions and completions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any

from workers.contract.reports.chat import LONGEST_CHAT, MOST_TOKENS, Ask, Finish, Sampling
from workers.contract.reports.lines import is_finite
from workers.trainer import openai_messages
from workers.trainer.jobs import tool_calls
from workers.trainer.jobs.asking import Answered, Asked, Scored

DEFAULT_TOKENS = {"chat": 1024, "completions": 16}
"""Without max_tokens; OpenAI's own completions have 16."""
MOST_PROMPTS = 32
"""Of one request for completions."""
MOST_TOP = 5
"""The most that logprobs can be."""
MOST_STOPS = 16
LONGEST_STOP = 200
_SAME_AS_NOTHING: dict[str, tuple[object, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "top_logprobs": (None, 0),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
}
"""What can't be done here, and the values that ask for nothing."""


class BadRequest(ValueError):
    """The request can't be answered; the message says why."""


class Shape(StrEnum):
    CHAT = "chat"
    COMPLETIONS = "completions"

    @classmethod
    def of(cls, path: str) -> Shape | None:
        return {"/v1/chat/completions": cls.CHAT, "/v1/completions": cls.COMPLETIONS}.get(path)


@dataclass(frozen=True)
class Request:
    shape: Shape
    asked: tuple[Asked, ...]
    """One, or several prompts for completions in one document."""
    stream: bool
    usage: bool
    """A stream ends with the counts of tokens."""
    top: int | None = None
    """The prompts are scored, and so many of the most probable tokens told at each place; None: they are answered."""
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answers: Sequence[tuple[str, Answered]]) -> dict[str, Any]:
        choices = []
        for index, (text, done) in enumerate(answers):
            finish = "length" if done.finish is Finish.LENGTH else "stop"
            said: dict[str, Any] = {"text": text}
            if self.shape is Shape.CHAT:
                with_tools = bool(self.asked[0].ask.tools)
                said = {"message": tool_calls.read(text) if with_tools else {"role": "assistant", "content": text}}
                finish = "tool_calls" if "tool_calls" in said["message"] else finish
            choices.append({"index": index, **said, "logprobs": None, "finish_reason": finish})
        return {**self._head(""), "choices": choices, "usage": _usage([done for _, done in answers])}

    def scored(self, scored: Sequence[Scored]) -> dict[str, Any]:
        choices = [
            {"index": index, "text": "".join(one.tokens), "logprobs": _logprobs(one), "finish_reason": "length"}
            for index, one in enumerate(scored)
        ]
        done = [Answered(Finish.LENGTH, int(one.further), len(one.tokens) - one.further) for one in scored]
        return {**self._head(""), "choices": choices, "usage": _usage(done)}

    def piece(self, text: str, *, first: bool) -> dict[str, Any]:
        if self.shape is Shape.CHAT:
            role = {"role": "assistant"} if first else {}
            return self._part({"delta": {**role, "content": text}}, None)
        return self._part({"text": text}, None)

    def last(self, done: Answered, *, first: bool) -> Iterator[dict[str, Any]]:
        """The end of a stream; `first`: nothing came before it."""
        if first:
            yield self.piece("", first=True)
        finish = "length" if done.finish is Finish.LENGTH else "stop"
        yield self._part({"delta": {}} if self.shape is Shape.CHAT else {"text": ""}, finish)
        if self.usage:
            yield {**self._head(".chunk"), "choices": [], "usage": _usage([done])}

    def _part(self, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {**self._head(".chunk"), "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish}]}

    def _head(self, chunk: str) -> dict[str, Any]:
        kind = f"chat.completion{chunk}" if self.shape is Shape.CHAT else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.asked[0].ask.model}


def read_request(shape: Shape, body: bytes, models: Sequence[str]) -> Request:
    """Raises BadRequest."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON.") from None
    if not isinstance(given, dict):
        raise BadRequest("The body is not a JSON object.")
    for name, nothing in _SAME_AS_NOTHING.items():
        if given.get(name) not in nothing:
            raise BadRequest(f"{name} can't be {str(given[name])[:60]} here.")
    model = given.get("model", models[0])
    if model not in models:
        raise BadRequest(f"There is no model {str(model)[:100]!r}. There are {', '.join(models)}.")
    top = _top(shape, given)
    sampling, stops = _sampling(shape, given, least=1 if top is None else 0), _stops(given)
    if shape is Shape.CHAT:
        try:
            tools = tool_calls.tools_in(given)
        except ValueError as error:
            raise BadRequest(str(error)) from None
        asked: tuple[Asked, ...] = (Asked(Ask(model, messages=_messages(given), tools=tools), sampling, stops),)
    else:
        if given.get("tools"):
            raise BadRequest("tools are for chat completions.")
        asked = tuple(
            Asked(Ask(model, plain=prompt), sampling, stops)
            if isinstance(prompt, str)
            else Asked(Ask(model), sampling, stops, tuple(prompt))
            for prompt in _prompts(given)
        )
    stream = given.get("stream") is True
    if top is not None and (stream or sampling.max_tokens > 1 or (sampling.max_tokens and sampling.temperature)):
        raise BadRequest("With echo, max_tokens is 0, or 1 at temperature 0, and the answer is no stream.")
    if stream and len(asked) > 1:
        raise BadRequest("A stream answers one prompt.")
    options = given.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return Request(shape, asked, stream=stream, usage=usage, top=top)


def _top(shape: Shape, given: dict[str, Any]) -> int | None:
    """What logprobs asks for, which goes with echo."""
    echo, top = given.get("echo") or False, given.get("logprobs")
    if echo is False and top in (None, False, 0):
        return None
    if shape is Shape.CHAT or echo is not True or top is None or isinstance(top, bool):
        raise BadRequest("echo and logprobs are for completions, and go together: a prompt is scored.")
    return int(_number(given, "logprobs", 0, 0, MOST_TOP, int))


def _messages(given: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    try:
        read = tuple(_message(message) for message in openai_messages.read(given.get("messages")))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    _check_length(sum(len(message["content"]) for message in read))
    return read


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = tool_calls.calls_of(message) if message["role"] == "assistant" else []
    plain = {"role": message["role"], "content": message["content"]}
    return {**plain, "tool_calls": calls} if calls else plain


def _prompts(given: dict[str, Any]) -> list[str | list[int]]:
    """Texts, or tokens."""
    prompt = given.get("prompt")
    prompts = [prompt] if isinstance(prompt, str) or _are_tokens(prompt) else prompt
    if not isinstance(prompts, list) or not 0 < len(prompts) <= MOST_PROMPTS:
        raise BadRequest(f"prompt must be a text, a list of tokens, or a list of at most {MOST_PROMPTS} of either.")
    for each in prompts:
        if not each or not (isinstance(each, str) or _are_tokens(each)):
            raise BadRequest("prompt must be a text or a list of tokens, and not be empty.")
    _check_length(sum(len(each) for each in prompts if isinstance(each, str)))
    return prompts


def _are_tokens(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(token) is int and token >= 0 for token in prompt)


def _check_length(characters: int) -> None:
    if characters > LONGEST_CHAT:
        raise BadRequest(f"The prompt has {characters:,} characters; at most {LONGEST_CHAT:,} are read.")


def _sampling(shape: Shape, given: dict[str, Any], *, least: int) -> Sampling:
    most = "max_completion_tokens" if given.get("max_completion_tokens") is not None else "max_tokens"
    return Sampling(
        temperature=_number(given, "temperature", 1.0, 0, 2, float),
        top_p=_number(given, "top_p", 1.0, 1e-6, 1, float),
        max_tokens=_number(given, most, DEFAULT_TOKENS[shape], least, MOST_TOKENS, int),
        seed=_number(given, "seed", secrets.randbelow(2**31), 0, 2**63 - 1, int),
    )


def _number(given: dict[str, Any], name: str, default: Any, low: float, high: float, kind: Callable[[Any], Any]) -> Any:
    value = given.get(name)
    if value is None:
        return default
    if not is_finite(value) or not low <= value <= high or kind(value) != value:
        raise BadRequest(f"{name} must be a number from {low:g} to {high:g}.")
    return kind(value)


def _stops(given: dict[str, Any]) -> tuple[str, ...]:
    stop = given.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(_is_stop(each) for each in stops):
        raise BadRequest(f"stop must be at most {MOST_STOPS} texts of at most {LONGEST_STOP} characters.")
    return tuple(stops)


def _is_stop(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= LONGEST_STOP


def _logprobs(scored: Scored) -> dict[str, Any]:
    offsets = accumulate((len(token) for token in scored.tokens[:-1]), initial=0)
    return {
        "tokens": scored.tokens,
        "token_logprobs": scored.logprobs,
        "top_logprobs": scored.top,
        "text_offset": list(offsets),
    }


def _usage(done: Sequence[Answered]) -> dict[str, int]:
    prompts, tokens = sum(each.prompt_tokens for each in done), sum(each.tokens for each in done)
    return {"prompt_tokens": prompts, "completion_tokens": tokens, "total_tokens": prompts + tokens}
