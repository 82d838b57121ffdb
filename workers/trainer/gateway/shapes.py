"""Requests and answers in the shapes of OpenAI's API, as far as agents need them in training.

The run decides how tokens are drawn: what a request says of that is ignored, and the answer's headers name it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.trainer import openai_messages
from workers.trainer.episodes.episode import Message
from workers.trainer.gateway.sessions import Refused

IGNORED_HEADER = "X-Ignored"
_IGNORED = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias",
    "repetition_penalty", "response_format", "tool_choice", "logprobs", "top_logprobs",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    most: int | None
    """Tokens that the client allows; None: as many as the run does."""
    stream: bool
    ignored: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] = ""


def read(document: Any, *, chat: bool) -> Asked:
    """Raises Refused."""
    if not isinstance(document, Mapping):
        raise Refused(400, "Send a JSON object.")
    if document.get("n") not in (None, 1):
        raise Refused(400, "n must be 1: the members of a group are sessions of their own.")
    most = document.get("max_completion_tokens") or document.get("max_tokens")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise Refused(400, "max_tokens must be a whole number from 1.")
    ignored = ", ".join(name for name in _IGNORED if document.get(name) is not None)
    common: dict[str, Any] = {"most": most, "stream": bool(document.get("stream")), "ignored": ignored}
    if chat:
        return Asked(**common, messages=_messages(document.get("messages")), tools=_tools(document.get("tools")))
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt):
        return Asked(**common, prompt=tuple(prompt))
    if not isinstance(prompt, str) or not prompt:
        raise Refused(400, "prompt must be one text, or one list of token ids.")
    return Asked(**common, prompt=prompt)


def chat_answer(model: str, message: Message, *, finish: str, usage: dict[str, int]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {**_head("chat.completion", model), "choices": [choice], "usage": usage}


def text_answer(model: str, text: str, *, finish: str, usage: dict[str, int]) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
    return {**_head("text_completion", model), "choices": [choice], "usage": usage}


def as_stream(answer: Mapping[str, Any]) -> bytes:
    """The whole answer as one part: its tokens arrive together."""
    choice = dict(answer["choices"][0])
    part: dict[str, Any] = {**answer, "choices": [choice]}
    if "message" in choice:
        message = dict(choice.pop("message"))
        for index, call in enumerate(message.get("tool_calls") or ()):
            call["index"] = index
        choice["delta"], part["object"] = message, "chat.completion.chunk"
    return b"data: " + json.dumps(part).encode() + b"\n\ndata: [DONE]\n\n"


def with_ids(message: Message, key: str) -> Message:
    """The model's message as a client gets it."""
    calls = [
        {
            "id": f"call_{key}_{number}",
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            },
        }
        for number, call in enumerate(message.get("tool_calls", ()))
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)


def usage_of(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _head(kind: str, model: str) -> dict[str, Any]:
    return {"id": f"{kind}-{time.monotonic_ns():x}", "object": kind, "created": int(time.time()), "model": model}


def _messages(given: Any) -> tuple[Message, ...]:
    try:
        return openai_messages.read(given)
    except openai_messages.BadMessages as error:
        raise Refused(400, str(error)) from None


def _tools(given: Any) -> tuple[Message, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(openai_messages.is_function(tool) for tool in given):
        raise Refused(400, "tools must be a list of functions.")
    return tuple(given)
