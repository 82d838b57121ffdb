"""A model's turn in an episode, from an OpenAI-compatible endpoint on the Secrets page."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from controlplane.catalogue.versioned.parameter_forms import endpoints
from runs.pages.playground.episode_play import NotWritten, Play, PlayedTurn, WrittenMove, storable
from workers.environments.entry import without_thinking
from workers.environments.executor import Call
from workers.rewards.entries.judge_client import JudgeClient
from workers.rewards.tools import Tools, Unavailable

AT_ONCE = 4
"""Maximum number of concurrent requests from all pages; each blocks a web thread."""
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
_room = threading.BoundedSemaphore(AT_ONCE)

Message = dict[str, Any]


@dataclass(frozen=True)
class ModelPlayer:
    endpoint: str
    model: str
    max_tokens: int
    temperature: float | None = None
    """The sampling temperature; the server's default if None."""


class PlayerForm(forms.Form):
    endpoint = forms.ChoiceField(
        choices=endpoints,
        help_text="An OpenAI-compatible server from the Secrets page.",
        error_messages={"required": "Choose the model's endpoint."},
    )
    model = forms.CharField(
        max_length=200,
        help_text="Its name on that server.",
        error_messages={"required": "Enter the model's name on that server."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    temperature = forms.FloatField(
        min_value=0,
        max_value=2,
        required=False,
        help_text="Leave empty for the server’s default.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    max_tokens = forms.IntegerField(
        label="Tokens per turn", min_value=1, max_value=32_768, initial=1024, help_text="Longer turns are truncated."
    )

    @property
    def problem(self) -> str:
        return " ".join(f"{self[name].label}: {' '.join(map(str, errors))}" for name, errors in self.errors.items())

    def player(self) -> ModelPlayer:
        return ModelPlayer(**self.cleaned_data)


def write(
    player: ModelPlayer, prompt: str | Sequence[Message], play: Play, tools: Tools, seconds: float
) -> WrittenMove:
    """Ask the model for the next turn. Raises NotWritten."""
    if seconds < MIN_SECONDS:
        raise NotWritten("The environment used up this request's time limit, so no time is left for the model.")
    try:
        endpoint = tools.endpoint(player.endpoint)
    except Unavailable as error:
        raise NotWritten(str(error)) from None
    if not _room.acquire(blocking=False):
        raise NotWritten("Too many other pages are waiting for models. Try again in a moment.")
    try:
        body = json.dumps(_body(player, prompt, play)).encode()
        client = JudgeClient(endpoint, 1, timeout_s=seconds, batch_s=seconds, slots=threading.Semaphore())
        [reply] = client.answers([body])
    finally:
        _room.release()
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
    return [*messages, *(message for number, turn in enumerate(turns, 1) for message in _turn(number, turn))]


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


def _turn(number: int, turn: PlayedTurn) -> list[Message]:
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
        choice = storable(json.loads(body))["choices"][0]
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
        return Call(str(function["name"]), storable(json.loads(arguments)) if isinstance(arguments, str) else arguments)
    except (ValueError, RecursionError):
        return Call(str(function["name"]), arguments)  # the executor reports the error
