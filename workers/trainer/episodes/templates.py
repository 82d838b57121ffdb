"""The chat template of a run with episodes: how tools and results are shown to the model, and how its calls are read."""

from __future__ import annotations

from typing import Any

from trl.chat_template_utils import add_response_schema, supports_tool_calling

CALLS_IN_TAGS: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""Of templates that TRL doesn't know by their text, and that write a call as JSON in <tool_call>, as most do that were
changed from a known one."""


def read_calls(tokenizer: Any) -> bool:
    """Let the tokenizer read the calls that its template shows. False if nobody knows how."""
    if any(getattr(tokenizer, name, None) is not None for name in ("response_template", "response_schema")):
        return True
    try:
        add_response_schema(tokenizer)
    except ValueError:
        if not _writes_calls_in_tags(tokenizer):
            return False
        tokenizer.response_template = CALLS_IN_TAGS
    return True


def _writes_calls_in_tags(tokenizer: Any) -> bool:
    if not supports_tool_calling(tokenizer):
        return False
    call = {"type": "function", "function": {"name": "find", "arguments": {"word": "a"}}}
    messages = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False)
    inside = shown.partition("<tool_call>")[2].partition("</tool_call>")[0]
    return "<|im_start|>assistant\n" in shown and '"name"' in inside and '"arguments"' in inside
