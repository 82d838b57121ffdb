"""Requests and responses in the format of OpenAI's API: chat completions and completions.

Served models accept `ModelRequest`s and apply their sampling settings. The rollout gateway accepts `AgentRequest`s: the
run decides how tokens are sampled, so settings in the request are ignored, and a header of the response lists them.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from workers.contract.reports.chat import MAX_CHAT_LENGTH, MAX_TOKENS, Ask, Finish, Sampling
from workers.contract.reports.metric_names import is_finite
from workers.trainer.episodes.episode import Message
from workers.trainer.jobs import tool_calls
from workers.trainer.jobs.generation import GenerationRequest, GenerationResult, PromptScores
from workers.trainer.keyed_endpoint import HttpRefusal

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
MAX_MESSAGES = 1000
DEFAULT_CHAT_TOKENS, DEFAULT_TEXT_TOKENS = 1024, 16
"""Values of max_tokens for requests without it; 16 is OpenAI's own for completions."""
MAX_PROMPTS = 32
MAX_TOP_LOGPROBS = 5
MAX_STOPS = 16
MAX_STOP_LENGTH = 200
IGNORED_HEADER = "X-Ignored"
_IGNORED_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias",
    "repetition_penalty", "response_format", "tool_choice", "logprobs", "top_logprobs",
)  # fmt: skip
_NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
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
"""Accepted values, which change nothing, of settings that served models don't support."""


# --- responses ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResponseHead:
    """The fields that all parts of one response share."""

    chat: bool
    model: str
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def document(self, choices: Sequence[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        """Compose a complete response. Choices get their index, and null for missing fields."""
        kind = "chat.completion" if self.chat else "text_completion"
        numbered = [{"index": index, "logprobs": None, **choice} for index, choice in enumerate(choices)]
        return {**self._fields(kind), "choices": numbered, "usage": usage}

    def part(self, choice: dict[str, Any] | None, usage: dict[str, int] | None = None) -> dict[str, Any]:
        choices = [] if choice is None else [{"index": 0, "logprobs": None, "finish_reason": None, **choice}]
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {**self._fields(kind), "choices": choices, **({} if usage is None else {"usage": usage})}

    def _fields(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage_of(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def event(part: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(part).encode() + b"\n\n"


END_OF_STREAM = b"data: [DONE]\n\n"


def as_stream(response: Mapping[str, Any]) -> bytes:
    """Encode a complete response as a stream of one event, for tokens that arrive together."""
    choice = dict(response["choices"][0])
    part: dict[str, Any] = {**response, "choices": [choice]}
    if "message" in choice:
        message = dict(choice.pop("message"))
        for index, call in enumerate(message.get("tool_calls") or ()):
            call["index"] = index
        choice["delta"], part["object"] = message, "chat.completion.chunk"
    return event(part) + END_OF_STREAM


def with_call_ids(message: Message, key: str) -> Message:
    """Convert the model's message for clients: each tool call gets an id, and its arguments become a JSON string."""
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


# --- parts of requests ----------------------------------------------------------------------------------------------


def read_messages(messages: object) -> tuple[Message, ...]:
    """Validate and return messages: text parts are joined, and each tool call has a function. Raises HttpRefusal if
    there are none or too many, or if one is malformed."""
    if not isinstance(messages, list) or not messages:
        raise HttpRefusal(400, "messages is missing or empty.")
    if len(messages) > MAX_MESSAGES:
        raise HttpRefusal(400, f"messages has {len(messages):,} messages; the limit is {MAX_MESSAGES:,}.")
    return tuple(_message(message, number) for number, message in enumerate(messages))


def _message(message: object, number: int) -> Message:
    if not isinstance(message, Mapping) or not isinstance(role := message.get("role"), str) or role not in ROLES:
        raise HttpRefusal(400, f"messages[{number}] has no role, or an unknown one.")
    content, calls = message.get("content"), message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(map(_has_function, calls))):
        raise HttpRefusal(400, f"messages[{number}].tool_calls must be a list of function calls.")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise HttpRefusal(400, f"messages[{number}] has parts that aren't text.")
        content = "".join(map(str, parts))
    if content is None and role == "assistant":
        content = ""  # it called tools, or said nothing
    if not isinstance(content, str):
        raise HttpRefusal(400, f"messages[{number}].content isn't a string.")
    optional = {name: message[name] for name in ("tool_calls", "name", "tool_call_id") if message.get(name)}
    return {"role": "system" if role == "developer" else role, "content": content, **optional}


def _has_function(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("function"), Mapping)


def are_tokens(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(token) is int and token >= 0 for token in prompt)


def count_in(document: Mapping[str, Any], name: str, default: int) -> int:
    """Return a setting that must be a whole number from 1, or the default. Raises HttpRefusal for any other value."""
    value = document.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise HttpRefusal(400, f"{name} must be a whole number, at least 1.")
    return value


# --- requests to the gateway ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentRequest:
    limit: int | None
    """The client's limit of completion tokens; None for the run's limit."""
    stream: bool
    ignored: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] = ""

    @property
    def headers(self) -> dict[str, str]:
        return {IGNORED_HEADER: self.ignored} if self.ignored else {}


def read_agent_request(document: Mapping[str, Any], *, chat: bool) -> AgentRequest:
    """Validate and return a request to the gateway. Raises HttpRefusal if it is malformed or asks for several
    responses."""
    if document.get("n") not in (None, 1):
        raise HttpRefusal(400, "n must be 1: each member of a group has its own session.")
    name = "max_completion_tokens" if document.get("max_completion_tokens") else "max_tokens"
    limit = count_in(document, name, 0) or None
    ignored = ", ".join(name for name in _IGNORED_FIELDS if document.get(name) is not None)
    common_fields: dict[str, Any] = {"limit": limit, "stream": bool(document.get("stream")), "ignored": ignored}
    if chat:
        tools = document.get("tools") or []
        if not isinstance(tools, list) or not all(map(_has_function, tools)):
            raise HttpRefusal(400, "tools must be a list of functions.")
        return AgentRequest(**common_fields, messages=read_messages(document.get("messages")), tools=tuple(tools))
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list) and are_tokens(prompt):
        return AgentRequest(**common_fields, prompt=tuple(prompt))
    if not isinstance(prompt, str) or not prompt:
        raise HttpRefusal(400, "prompt must be one string or one list of token ids.")
    return AgentRequest(**common_fields, prompt=prompt)


# --- requests to a served model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelRequest:
    head: ResponseHead
    prompts: tuple[GenerationRequest, ...]
    """Prompts to complete; more than one only for completions."""
    stream: bool
    usage: bool
    """True if the stream ends with the token counts."""
    top: int | None = None
    """Number of most probable tokens to return at each position when scoring prompts; None to generate."""

    def response(self, completions: Sequence[tuple[str, GenerationResult]]) -> dict[str, Any]:
        choices = [self._choice(text, result) for text, result in completions]
        return self.head.document(choices, _total_usage([result for _, result in completions]))

    def scores(self, scores: Sequence[PromptScores]) -> dict[str, Any]:
        choices = [
            {"text": "".join(prompt.tokens), "logprobs": _logprobs(prompt), "finish_reason": "length"}
            for prompt in scores
        ]
        counts = [
            GenerationResult(Finish.LENGTH, int(prompt.extended), len(prompt.tokens) - prompt.extended)
            for prompt in scores
        ]
        return self.head.document(choices, _total_usage(counts))

    def piece(self, text: str, *, is_first: bool) -> dict[str, Any]:
        if not self.head.chat:
            return self.head.part({"text": text})
        role = {"role": "assistant"} if is_first else {}
        return self.head.part({"delta": {**role, "content": text}})

    def last_parts(self, result: GenerationResult) -> Iterator[dict[str, Any]]:
        empty_choice: dict[str, Any] = {"delta": {}} if self.head.chat else {"text": ""}
        yield self.head.part({**empty_choice, "finish_reason": _finish_reason(result)})
        if self.usage:
            yield self.head.part(None, _total_usage([result]))

    def _choice(self, text: str, result: GenerationResult) -> dict[str, Any]:
        if not self.head.chat:
            return {"text": text, "finish_reason": _finish_reason(result)}
        message = {"role": "assistant", "content": text}
        if self.prompts[0].ask.tools:
            message = tool_calls.read(text)
        reason = "tool_calls" if "tool_calls" in message else _finish_reason(result)
        return {"message": message, "finish_reason": reason}


def read_model_request(document: Mapping[str, Any], models: Sequence[str], *, chat: bool) -> ModelRequest:
    """Validate and return a request to a served model. Raises HttpRefusal if it is malformed, names no model of
    `models`, or needs what isn't supported."""
    for name, neutral in _NEUTRAL_VALUES.items():
        if document.get(name) not in neutral:
            raise HttpRefusal(400, f"{name} can't be {str(document[name])[:60]} here.")
    model = document.get("model", models[0])
    if model not in models:
        raise HttpRefusal(400, f"There is no model {str(model)[:100]!r}. Available: {', '.join(models)}.")
    top = _top(document, chat=chat)
    sampling, stops = _sampling(document, chat=chat, min_tokens=1 if top is None else 0), _stops(document)
    if chat:
        asks: list[tuple[Ask, tuple[int, ...]]] = [
            (Ask(model, messages=_chat_messages(document), tools=tool_calls.tools_in(document)), ())
        ]
    else:
        if document.get("tools"):
            raise HttpRefusal(400, "tools are only supported for chat completions.")
        asks = [
            (Ask(model, plain=prompt), ()) if isinstance(prompt, str) else (Ask(model), tuple(prompt))
            for prompt in _prompts(document)
        ]
    stream = document.get("stream") is True
    if top is not None and (stream or sampling.max_tokens > 1 or (sampling.max_tokens and sampling.temperature)):
        raise HttpRefusal(
            400, "With echo, max_tokens must be 0, or 1 at temperature 0, and the response can't be streamed."
        )
    if stream and len(asks) > 1:
        raise HttpRefusal(400, "Only one prompt can be streamed.")
    options = document.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    prompts = tuple(GenerationRequest(ask, sampling, stops, tokens) for ask, tokens in asks)
    return ModelRequest(ResponseHead(chat, model), prompts, stream=stream, usage=usage, top=top)


def _top(document: Mapping[str, Any], *, chat: bool) -> int | None:
    """Return `logprobs` of a request with `echo`, or None without echo."""
    echo, top = document.get("echo") or False, document.get("logprobs")
    if echo is False and top in (None, False, 0):
        return None
    if chat or echo is not True or top is None or isinstance(top, bool):
        raise HttpRefusal(
            400, "echo and logprobs are only supported for completions, and only together: they score a prompt."
        )
    return int(_number(document, "logprobs", 0, 0, MAX_TOP_LOGPROBS, int))


def _chat_messages(document: Mapping[str, Any]) -> tuple[Message, ...]:
    """Read the messages in the form that chat templates expect, with arguments of tool calls as objects."""
    messages = []
    for message in read_messages(document.get("messages")):
        calls = tool_calls.calls_of(message) if message["role"] == "assistant" else []
        chat_message = {"role": message["role"], "content": message["content"]}
        messages.append({**chat_message, "tool_calls": calls} if calls else chat_message)
    _check_length(sum(len(message["content"]) for message in messages))
    return tuple(messages)


def _prompts(document: Mapping[str, Any]) -> list[str | list[int]]:
    prompt = document.get("prompt")
    prompts = [prompt] if isinstance(prompt, str) or are_tokens(prompt) else prompt
    if not isinstance(prompts, list) or not 0 < len(prompts) <= MAX_PROMPTS:
        raise HttpRefusal(
            400, f"prompt must be a string, a list of tokens, or a list of at most {MAX_PROMPTS} of either."
        )
    for prompt in prompts:
        if not prompt or not (isinstance(prompt, str) or are_tokens(prompt)):
            raise HttpRefusal(400, "prompt must be a string or a list of tokens, and must not be empty.")
    _check_length(sum(len(prompt) for prompt in prompts if isinstance(prompt, str)))
    return prompts


def _check_length(characters: int) -> None:
    if characters > MAX_CHAT_LENGTH:
        raise HttpRefusal(400, f"The prompt has {characters:,} characters; the limit is {MAX_CHAT_LENGTH:,}.")


def _sampling(document: Mapping[str, Any], *, chat: bool, min_tokens: int) -> Sampling:
    limit = "max_completion_tokens" if document.get("max_completion_tokens") is not None else "max_tokens"
    default = DEFAULT_CHAT_TOKENS if chat else DEFAULT_TEXT_TOKENS
    return Sampling(
        temperature=_number(document, "temperature", 1.0, 0, 2, float),
        top_p=_number(document, "top_p", 1.0, 1e-6, 1, float),
        max_tokens=_number(document, limit, default, min_tokens, MAX_TOKENS, int),
        seed=_number(document, "seed", secrets.randbelow(2**31), 0, 2**63 - 1, int),
    )


def _number(
    document: Mapping[str, Any], name: str, default: Any, low: float, high: float, kind: Callable[[Any], Any]
) -> Any:
    value = document.get(name)
    if value is None:
        return default
    if not is_finite(value) or not low <= value <= high or kind(value) != value:
        raise HttpRefusal(400, f"{name} must be a number from {low:g} to {high:g}.")
    return kind(value)


def _stops(document: Mapping[str, Any]) -> tuple[str, ...]:
    stop = document.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    is_valid = isinstance(stops, list) and len(stops) <= MAX_STOPS
    if not is_valid or not all(isinstance(text, str) and 0 < len(text) <= MAX_STOP_LENGTH for text in stops):
        raise HttpRefusal(400, f"stop must be at most {MAX_STOPS} strings of at most {MAX_STOP_LENGTH} characters.")
    return tuple(stops)


def _finish_reason(result: GenerationResult) -> str:
    return "length" if result.finish is Finish.LENGTH else "stop"


def _logprobs(scores: PromptScores) -> dict[str, Any]:
    return {
        "tokens": scores.tokens,
        "token_logprobs": scores.logprobs,
        "top_logprobs": scores.top,
        "text_offset": list(accumulate((len(token) for token in scores.tokens[:-1]), initial=0)),
    }


def _total_usage(results: Sequence[GenerationResult]) -> dict[str, int]:
    return usage_of(sum(result.prompt_tokens for result in results), sum(result.tokens for result in results))
