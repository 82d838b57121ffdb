"""Tools of a served model: offered by a request, shown by the chat template, and the calls read from the answer.

Calls are read in one form, that of Hermes and Qwen: JSON between <tool_call> and </tool_call>. A model whose template
writes them in another form is refused, rather than its calls passed on as text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

BEGIN = "<tool_call>"
MOST_TOOLS = 128
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_OTHER = "<function="
"""In templates that put XML between the marks."""


def tools_in(given: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Those of a request. Raises ValueError, with words for whoever asked."""
    tools = given.get("tools") or []
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS or not all(map(_is_tool, tools)):
        raise ValueError(f"tools must be a list of at most {MOST_TOOLS} functions, each with a name.")
    if tools and given.get("stream") is True:
        raise ValueError("With tools, the answer is no stream.")
    return () if given.get("tool_choice") == "none" else tuple(tools)


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An earlier message's calls as templates take them: the arguments are objects. Raises ValueError."""
    try:
        calls = [one["function"] for one in message.get("tool_calls") or ()]
        return [{"type": "function", "function": {"name": str(c["name"]), "arguments": _arguments(c)}} for c in calls]
    except (LookupError, TypeError, RecursionError):
        raise ValueError("tool_calls must be a list of calls, each with a function.") from None


def problem(template: str) -> str:
    """Why this chat template can't be used with tools; "": it can."""
    if "tools" not in template:
        return "The model's chat template can't show tools."
    if BEGIN not in template or _OTHER in template:
        return f"The model's chat template doesn't write tool calls as JSON in {BEGIN}: they can't be read here."
    return ""


def read(text: str) -> dict[str, Any]:
    """The answer's message. What looks like a call and can't be read stays text."""
    calls: list[dict[str, Any]] = []

    def take(match: re.Match[str]) -> str:
        try:
            call = json.loads(match[1])
            function = {"name": str(call["name"]), "arguments": json.dumps(call.get("arguments", {}))}
        except (ValueError, LookupError, RecursionError):
            return match[0]
        calls.append({"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function})
        return ""

    rest = _CALL.sub(take, text).strip()
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": rest or None, "tool_calls": calls}


def _is_tool(one: object) -> bool:
    function = one.get("function") if isinstance(one, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments") or {}
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        read = {}
    return read if isinstance(read, dict) else {}
