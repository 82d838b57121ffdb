"""Tool calls of a served model: offered by requests, rendered by the chat template, parsed from answers.

Calls are parsed in only one format, that of Hermes and Qwen: JSON between <tool_call> and </tool_call>. Models whose
template uses another format are refused, so that their calls aren't passed on as text.
"""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from workers.trainer.keyed_endpoint import HttpRefusal

BEGIN = "<tool_call>"
MAX_TOOLS = 128
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_XML_CALL = "<function="
"""Part of templates that write XML between the tags."""


def tools_in(document: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return a request's tools, or () if its tool_choice is "none". Raises HttpRefusal if they aren't functions with
    names, are too many, or come with streaming."""
    tools = document.get("tools") or []
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS or not all(map(_is_tool, tools)):
        raise HttpRefusal(400, f"tools must be a list of at most {MAX_TOOLS} functions, each with a name.")
    if tools and document.get("stream") is True:
        raise HttpRefusal(400, "With tools, the response can't be streamed.")
    return () if document.get("tool_choice") == "none" else tuple(tools)


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an earlier message's calls in the form for chat templates, with arguments as objects. Raises HttpRefusal
    if they aren't calls of functions."""
    try:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        return [{"type": "function", "function": {"name": str(c["name"]), "arguments": _arguments(c)}} for c in calls]
    except (LookupError, TypeError, RecursionError):
        raise HttpRefusal(400, "tool_calls must be a list of calls, each with a function.") from None


def problem(template: str) -> str:
    """Return why this chat template can't be used with tools, or ""."""
    if "tools" not in template:
        return "The model's chat template can't render tools."
    if BEGIN not in template or _XML_CALL in template:
        return f"The model's chat template doesn't write tool calls as JSON in {BEGIN}, so they can't be parsed here."
    return ""


def read(text: str) -> dict[str, Any]:
    """Parse an answer and return a message with its tool calls. Calls that can't be parsed remain text."""
    calls: list[dict[str, Any]] = []

    def extract(match: re.Match[str]) -> str:
        try:
            call = json.loads(match[1])
            function = {"name": str(call["name"]), "arguments": json.dumps(call.get("arguments", {}))}
        except (ValueError, LookupError, RecursionError):
            return match[0]
        calls.append({"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function})
        return ""

    remaining_text = _CALL.sub(extract, text).strip()
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": remaining_text or None, "tool_calls": calls}


def _is_tool(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments") or {}
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        parsed = {}
    return parsed if isinstance(parsed, dict) else {}
