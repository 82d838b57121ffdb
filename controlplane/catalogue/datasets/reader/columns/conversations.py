"""Chat messages in common formats: with role and content, or from and value, in lists or in JSON strings."""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from controlplane.catalogue.datasets.reader.columns.fields import RowProblem, kind, parse_list, required_value
from controlplane.catalogue.datasets.reader.columns.paths import SPEAKERS
from controlplane.catalogue.datasets.reader.parsing.records import IMAGE_WORDS

Message = dict[str, str]

TOOL = "tool"
NO_IMAGES = "images, sounds and videos aren't trained on"
CHAT_TOKENS = re.compile(
    r"<\|(?:im_start|im_end|start_header_id|eot_id|begin_of_text|endoftext|user|assistant|system|end)\|>"
    r"|<\|(?:start|message|channel|header_start|eot|im_user|im_middle|START_OF_TURN_TOKEN|USER_TOKEN)\|>"
    r"|<start_of_turn>|<｜(?:User|Assistant)｜>|\[/?INST\]|<</?SYS>>|\[gMASK\]"
)
"""Tokens that a chat template writes around messages."""
TEMPLATE_END = re.compile(r"(?:###? ?(?:Response|Assistant|Answer)|\n(?:Assistant|ASSISTANT)):\s*\Z")
"""End of a prompt that a template for plain text has written."""
_OPEN_END = re.compile(r"<(think|answer|reasoning|thinking|scratchpad)>(?!.*</\1>)", re.DOTALL)
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "ai"), "assistant"),
    **dict.fromkeys((TOOL, "function", "function_call", "function_response", "observation", "ipython"), TOOL),
}
_IMAGE_STARTS = ("data:image/", "data:video/", "data:audio/", "iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
_CONTENTS = ("content", "value", "text")
_CALLS = ("tool_calls", "function_call")


def messages(row: Mapping[str, Any], name: str) -> list[Message]:
    """Return the column's messages with role and content. Raises RowProblem if they are unusable or in the wrong order.

    Successive messages of one role are joined. Tool calls and results after the last question are left out: the model
    makes its own.
    """
    value = required_value(row, name)
    if isinstance(value, str):
        value = parse_list(value)
    if not isinstance(value, list):
        message_text = (
            f"“{name}” is {kind(row.get(name))}; messages must be a list of objects with “role” and “content”."
        )
        raise RowProblem("wrong_type", message_text, name)
    if not value:
        raise RowProblem("empty_field", f"“{name}” has no messages.", name)
    turns = [_message(entry, number, name, is_last=number == len(value)) for number, entry in enumerate(value, 1)]
    if any(turn is None or turn["role"] == TOOL for turn in turns):
        turns = _without_tools(turns, name)
    result: list[Message] = []
    for turn in turns:
        if turn and result and result[-1]["role"] == turn["role"]:
            result[-1] = {**turn, "content": f"{result[-1]['content']}\n\n{turn['content']}"}
        elif turn:
            result.append(turn)
    if not result:
        raise RowProblem("chat_roles", f"“{name}” has no question of the user.", name)
    _check_turns(result, name)
    return result


def are_messages(value: Any) -> bool:
    """Return whether a value is a list of chat messages, judged by their keys."""
    if isinstance(value, str):
        value = parse_list(value)
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(entry, dict) and any(key in entry for key in SPEAKERS) for entry in value)
        and any(key in value[0] for key in _CONTENTS)
    )


def ends_with_answer(value: Any) -> bool:
    """Return whether the last of some messages is the assistant's, with text."""
    last = (parse_list(value) or [None])[-1] if isinstance(value, str) else value[-1]
    speaker = str(next((last[key] for key in SPEAKERS if key in last), ""))
    return _ROLES.get(speaker.lower()) == "assistant" and any(last.get(key) for key in _CONTENTS)


def begins_answer(texts: Collection[str]) -> bool:
    """Return whether last turns of the assistant only begin an answer: with a tag that stays open, or all alike."""
    return bool(texts) and (all(map(_OPEN_END.search, texts)) or (len(texts) > 1 and len(set(texts)) == 1))


def last_text(value: Any) -> str:
    """Return the text of the last of some messages, or ""."""
    turns = parse_list(value) if isinstance(value, str) else value
    last = turns[-1] if isinstance(turns, list) and turns and isinstance(turns[-1], dict) else {}
    text = next((last[key] for key in _CONTENTS if last.get(key)), "")
    return text if isinstance(text, str) else ""


def uses_tools(value: Any) -> bool:
    """Return whether a value is a list of messages with tool calls or results."""
    turns = parse_list(value) if isinstance(value, str) else value
    return isinstance(turns, list) and any(
        isinstance(turn, dict)
        and (
            any(turn.get(key) for key in _CALLS) or _ROLES.get(str(turn.get("role", turn.get("from"))).lower()) == TOOL
        )
        for turn in turns
    )


def check_images(row: Mapping[str, Any]) -> None:
    """Raise RowProblem if the row has an image, a video or a sound. A string could also be a caption or an address, so
    it counts only if a text in the row has a marker such as “<image>”, or if it is the content of an image."""
    for name in _image_names(tuple(row)):
        value = row[name]
        if not value:
            continue
        if name in IMAGE_WORDS:
            has_mark = any(f"<{name.rstrip('s')}>" in str(other) for other in row.values())
            is_image = not isinstance(value, str) or has_mark or _is_image(value)
        else:
            is_image = _is_image(value)
        if is_image:
            raise RowProblem("images", f"“{name}” has content, but {NO_IMAGES}.", name)


@lru_cache(maxsize=256)
def _image_names(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not IMAGE_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))]


def _is_image(value: Any) -> bool:
    """Return whether a value is the content of an image or a reference to one, as the datasets library writes it."""
    if isinstance(value, str):
        return value.startswith(_IMAGE_STARTS)
    if isinstance(value, list):
        return any(map(_is_image, value))
    return isinstance(value, dict) and any(value.get(key) for key in ("bytes", "path", "url", "src"))


def _message(message: Any, number: int, name: str, *, is_last: bool) -> Message | None:
    """Return a message; None for a tool call, or for a last message of the assistant without content."""
    if not isinstance(message, dict):
        raise RowProblem("message_shape", f"Message {number} in “{name}” is {kind(message)}, not an object.", name)
    speaker = message.get("role", message.get("from"))
    content = next((message[key] for key in _CONTENTS if message.get(key) is not None), None)
    role = _ROLES.get(speaker) or _ROLES.get(speaker.lower()) if isinstance(speaker, str) else None
    if role == "assistant" and (any(message.get(key) for key in _CALLS) or (content is None and is_last)):
        return None
    if isinstance(content, list):
        content = _joined_parts(content, number, name)
    if not isinstance(speaker, str) or not isinstance(content, str):
        raise RowProblem("message_shape", f"Message {number} in “{name}” lacks a string “role” or “content”.", name)
    if role is None:
        message_text = (
            f"Message {number} in “{name}” has the role “{speaker[:40]}”; roles are system, user and assistant."
        )
        raise RowProblem("chat_roles", message_text, name)
    return {"role": role, "content": content}


def _joined_parts(parts: list[Any], number: int, name: str) -> str | None:
    """Return the text of a content's parts, or None if a part has no text."""
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict)]
    for part in parts:
        names = [name for name in part if part[name]] if isinstance(part, dict) else ()
        kinds = [str(part.get("type") or ""), *names] if names else ()
        kind_of_part = next((kind for kind in kinds if any(word in kind for word in ("image", "video", "audio"))), "")
        if kind_of_part:
            message_text = f"Message {number} in “{name}” has a part of type {kind_of_part[:40]}, but {NO_IMAGES}."
            raise RowProblem("images", message_text, name)
    return "\n".join(text for text in texts if isinstance(text, str)) if any(texts) and None not in texts else None


def _without_tools(turns: list[Message | None], name: str) -> list[Message | None]:
    """Leave out tool calls and results, which may only follow the last question. Raises RowProblem if one comes before
    it."""
    last_question = max((n for n, turn in enumerate(turns) if turn and turn["role"] == "user"), default=-1)
    for number, turn in enumerate(turns[: max(0, last_question)], 1):
        if turn is None or turn["role"] == TOOL:
            what = "calls a tool" if turn is None else "is the result of a tool"
            message_text = f"Message {number} in “{name}” {what}; a prompt can't contain tool calls and their results."
            raise RowProblem("chat_roles", message_text, name)
    after = turns[last_question + 1 :]
    return turns[: last_question + 1] + (after[-1:] if after and after[-1] and after[-1]["role"] != TOOL else [])


def _check_turns(conversation: list[Message], name: str) -> None:
    turns = conversation[1:] if conversation[0]["role"] == "system" else conversation
    if not turns:
        raise RowProblem("chat_roles", f"“{name}” has only a system message.", name)
    first = len(conversation) - len(turns) + 1
    for number, message in enumerate(turns, first):
        expected = "assistant" if (number - first) % 2 else "user"
        if message["role"] != expected:
            message_text = f"Message {number} in “{name}” is by the {message['role']}, but it is the {expected}'s turn."
            raise RowProblem("chat_roles", message_text, name)
        if expected == "user" and not message["content"].strip():
            raise RowProblem("empty_field", f"Message {number} in “{name}” is empty.", name)
