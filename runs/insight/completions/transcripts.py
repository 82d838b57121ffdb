"""Prompts and completions as chat turns, from stored messages or from text with a chat template's markers."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CHATML = re.compile(r"<\|im_start\|>[ \t]*(\w+)[ \t]*\n?(.*?)(?:<\|im_end\|>\n?|(?=<\|im_start\|>)|\Z)", re.DOTALL)
_THINK = re.compile(r"\A(.*?)<think>(.*?)(?:</think>|\Z)(.*)\Z", re.DOTALL)
_TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
ROLES = {
    "system": "System",
    "user": "User",
    "assistant": "Model",
    "tool": "Tool result",
    "thinking": "Thinking",
    "call": "Tool call",
    "observation": "Environment",
}


@dataclass(frozen=True)
class TranscriptTurn:
    role: str
    """A key of ROLES, or any other role of the message."""
    text: str
    name: str = ""

    @property
    def label(self) -> str:
        return ROLES.get(self.role, self.role)

    @property
    def css(self) -> str:
        return self.role if self.role in ROLES else "other"


def turns(text: str | None, messages: Sequence[Any] | None, role: str) -> list[TranscriptTurn]:
    """Split text or messages into turns without omitting anything. `role` is the role of plain text."""
    if messages:
        return [turn for message in messages for turn in _message_turns(message)]
    if not text:
        return []
    if "<|im_start|>" in text:
        return [turn for turn in _chatml_turns(text, role) if turn.text.strip()]
    return list(_text_turns(text, role)) or [TranscriptTurn(role, text)]


def _message_turns(message: object) -> Iterator[TranscriptTurn]:
    if not isinstance(message, Mapping):
        yield TranscriptTurn("", _as_text(message))
        return
    role, content = str(message.get("role") or ""), message.get("content")
    name = str(message.get("name") or "")
    for key in ("reasoning_content", "thinking"):
        if isinstance(message.get(key), str):
            yield TranscriptTurn("thinking", message[key])
    if isinstance(content, str):
        yield from _text_turns(content, role, name)
    elif content is not None:
        yield TranscriptTurn(role, _as_text(content), name)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield _call_turn(call)


def _call_turn(call: object) -> TranscriptTurn:
    function = call.get("function", call) if isinstance(call, Mapping) else call
    if not isinstance(function, Mapping) or "name" not in function:
        return TranscriptTurn("call", _as_text(call))
    arguments = function.get("arguments", {})
    return TranscriptTurn(
        "call", arguments if isinstance(arguments, str) else _as_text(arguments), str(function["name"])
    )


def _chatml_turns(text: str, role: str) -> Iterator[TranscriptTurn]:
    offset = 0
    for match in _CHATML.finditer(text):
        yield from _text_turns(text[offset : match.start()], role)
        yield from _text_turns(match[2], match[1])
        offset = match.end()
    yield from _text_turns(text[offset:], role)


def _text_turns(text: str, role: str, name: str = "") -> Iterator[TranscriptTurn]:
    """Split text into turns. A model's thinking and tool calls, if marked as in common templates, become turns."""
    if role != "assistant":
        if text.strip():
            yield TranscriptTurn(role, text, name)
        return
    thought = _THINK.match(text) if "<think>" in text else None
    if thought:
        yield from _split_calls(thought[1], role)
        yield TranscriptTurn("thinking", thought[2].strip("\n"))
        text = thought[3].lstrip("\n")
    yield from _split_calls(text, role)


def _split_calls(text: str, role: str) -> Iterator[TranscriptTurn]:
    offset = 0
    for match in _TOOL_CALL.finditer(text):
        if text[offset : match.start()].strip():
            yield TranscriptTurn(role, text[offset : match.start()])
        try:
            yield _call_turn(json.loads(match[1]))
        except (ValueError, RecursionError):
            yield TranscriptTurn("call", match[1].strip())
        offset = match.end()
    if text[offset:].strip():
        yield TranscriptTurn(role, text[offset:])


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
