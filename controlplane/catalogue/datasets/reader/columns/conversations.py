"""Chat messages in common formats: with role and content, or from and value, in lists or in JSON strings."""

from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.columns.fields import RowProblem, kind, parse_list, present

Message = dict[str, str]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
}


def messages(row: Mapping[str, Any], name: str) -> list[Message]:
    """Return the column's messages with role and content. Raises RowProblem, also for roles out of order."""
    value = present(row, name)
    if isinstance(value, str):
        value = parse_list(value)
    if not isinstance(value, list):
        message_text = f"“{name}” is {kind(row[name])}; messages must be a list of objects with “role” and “content”."
        raise RowProblem("wrong_type", message_text, name)
    if not value:
        raise RowProblem("empty_field", f"“{name}” has no messages.", name)
    result = [_message(entry, number, name) for number, entry in enumerate(value, 1)]
    _check_turns(result, name)
    return result


def are_messages(value: Any) -> bool:
    """Return whether a value is a list of chat messages, judged by their keys."""
    if isinstance(value, str):
        value = parse_list(value)
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(entry, dict) and ({"role", "content"} <= entry.keys() or {"from", "value"} <= entry.keys())
            for entry in value
        )
    )


def _message(message: Any, number: int, name: str) -> Message:
    if not isinstance(message, dict):
        raise RowProblem("message_shape", f"Message {number} in “{name}” is {kind(message)}, not an object.", name)
    role, content = message.get("role", message.get("from")), message.get("content", message.get("value"))
    if not isinstance(role, str) or not isinstance(content, str):
        raise RowProblem("message_shape", f"Message {number} in “{name}” lacks a string “role” or “content”.", name)
    if role not in _ROLES:
        message_text = f"Message {number} in “{name}” has the role “{role[:40]}”; roles are system, user and assistant."
        raise RowProblem("chat_roles", message_text, name)
    return {"role": _ROLES[role], "content": content}


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
