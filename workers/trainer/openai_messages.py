"""Messages of OpenAI's API, as a client sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
MOST = 1000
"""Of one request."""
_KEPT = ("tool_calls", "name", "tool_call_id")


class BadMessages(ValueError):
    """They can't be read; the message says why."""


def read(given: object) -> tuple[dict[str, Any], ...]:
    """With plain texts and their calls of tools. Raises BadMessages."""
    if not isinstance(given, list) or not given:
        raise BadMessages("messages is missing or empty.")
    if len(given) > MOST:
        raise BadMessages(f"messages has {len(given):,} messages; at most {MOST:,} are read.")
    return tuple(_message(message, number) for number, message in enumerate(given))


def _message(message: object, number: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(role := message.get("role"), str) or role not in ROLES:
        raise BadMessages(f"messages[{number}] has no role, or an unknown one.")
    content, calls = message.get("content"), message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(is_function(call) for call in calls)):
        raise BadMessages(f"messages[{number}].tool_calls must be a list of calls of functions.")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise BadMessages(f"messages[{number}] has parts that are not text.")
        content = "".join(str(part) for part in parts)
    if content is None and role == "assistant":
        content = ""  # it called tools, or said nothing
    if not isinstance(content, str):
        raise BadMessages(f"messages[{number}].content is not text.")
    made = {"role": "system" if role == "developer" else role, "content": content}
    return (
        made | ({"tool_calls": calls} if calls else {}) | {name: message[name] for name in _KEPT if message.get(name)}
    )


def is_function(value: object) -> bool:
    """A tool, or a call of one."""
    return isinstance(value, Mapping) and isinstance(value.get("function"), Mapping)
