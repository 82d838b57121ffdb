"""A model's turn in an episode, from an OpenAI-compatible endpoint on the Secrets page."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.pages.playground.episode_play import NotWritten, Play, PlayedTurn, WrittenMove, utf8_safe
from workers.environments.entry import without_thinking
from workers.environments.executor import Call
from workers.rewards.entries.judge_client import JudgeClient
from workers.rewards.tools import Tools, Unavailable

MIN_SECONDS = 5.0
"""Minimum time that must be left for calling a model."""
NO_TOOLS = (
    "Its server may not support tools: the model's chat template must support them, and vLLM needs "
    "--enable-auto-tool-choice with a --tool-call-parser."
)
AS_TEXT = (
    "The model wrote a tool call, but its server returned it as text, so the environment sees no call. vLLM needs "
    "--enable-auto-tool-choice with the --tool-call-parser that fits the model."
)

Message = dict[str, Any]


@dataclass(frozen=True)
class ModelPlayer:
    endpoint: str
    model: str
    max_tokens: int
    temperature: float | None = None
    """The sampling temperature; the server's default if None."""


def write(
    player: ModelPlayer, prompt: str | Sequence[Message], play: Play, *, tools: Tools, until: float
) -> WrittenMove:
    """Ask the model for the next turn, up to the deadline on the monotonic clock. Raises NotWritten if no time is left,
    if the model can't be asked, or if its reply is unusable."""
    seconds = until - time.monotonic()
    if seconds < MIN_SECONDS:
        raise NotWritten("The environment used up this request's time limit, so no time is left for the model.")
    try:
        endpoint = tools.endpoint(player.endpoint)
    except Unavailable as error:
        raise NotWritten(str(error)) from None
    body = json.dumps(_body(player, prompt, play)).encode()
    client = JudgeClient(endpoint, 1, timeout_s=seconds, batch_s=seconds, slots=threading.Semaphore())
    [reply] = client.answers([body])
    if reply.trouble:
        hint = NO_TOOLS if play.tools and reply.trouble.startswith("It answered 4") and "tool" in reply.trouble else ""
        raise NotWritten(f"{player.endpoint} returned no turn. {reply.trouble} {hint}".strip())
    text = reply.body.decode(errors="replace")
    move = _move(text.replace(endpoint.key, "[key]") if endpoint.key else text)
    if play.tools and not move.calls and "<tool_call>" in move.text:
        raise NotWritten(AS_TEXT)
    return move


def chat(prompt: str | Sequence[Message], opening: str, turns: Sequence[PlayedTurn]) -> list[Message]:
    """Convert the episode to the API's messages: calls get ids, and arguments become JSON strings."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if opening and messages:
        messages[-1] = {**messages[-1], "content": f"{messages[-1].get('content') or ''}{opening}"}
    return [
        *messages,
        *(message for number, turn in enumerate(turns, 1) for message in _messages_of_turn(number, turn)),
    ]


def _body(player: ModelPlayer, prompt: str | Sequence[Message], play: Play) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": player.model,
        "messages": chat(prompt, play.opening, play.turns),
        "max_tokens": player.max_tokens,
        "stream": False,
    }
    if play.tools:
        body["tools"] = [tool.as_dict() for tool in play.tools]
    return body if player.temperature is None else body | {"temperature": player.temperature}


def _messages_of_turn(number: int, turn: PlayedTurn) -> list[Message]:
    message: Message = {"role": "assistant", "content": without_thinking(turn.move.text)}
    if not turn.move.calls:
        return [message, *({"role": "user", "content": answer.text} for _, answer in turn.answers)]
    message["tool_calls"] = []
    for index, call in enumerate(turn.move.calls):
        arguments = json.dumps(call.arguments) if isinstance(call.arguments, Mapping) else "{}"
        function = {"name": call.name, "arguments": arguments}
        message["tool_calls"].append({"id": f"call_{number}_{index}", "type": "function", "function": function})
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": answer.text}
        for call, (_, answer) in zip(message["tool_calls"], turn.answers, strict=False)
    ]
    return [message, *answers]


def _move(body: str) -> WrittenMove:
    try:
        choice = utf8_safe(json.loads(body))["choices"][0]
        message = choice["message"]
        calls = tuple(_call(request["function"]) for request in message.get("tool_calls") or ())
        content, thought = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise NotWritten("The server's response is not a chat completion.") from None
    text = content if isinstance(content, str) else ""
    if isinstance(thought, str) and thought.strip():
        text = f"<think>\n{thought.strip()}\n</think>\n\n{text}".strip()
    if not text.strip() and not calls:
        hint = " It reached the token limit: allow more tokens." if choice.get("finish_reason") == "length" else ""
        raise NotWritten(f"The model wrote nothing.{hint}")
    return WrittenMove(text, calls)


def _call(function: Mapping[str, Any]) -> Call:
    arguments = function.get("arguments")
    try:
        return Call(
            str(function["name"]), utf8_safe(json.loads(arguments)) if isinstance(arguments, str) else arguments
        )
    except (ValueError, RecursionError):
        return Call(str(function["name"]), arguments)  # the executor reports the error
