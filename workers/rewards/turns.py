"""The turns of a completion, each as a completion of its own: what a component with `per_turn` scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.rewards.reward import Completion


def split(completion: Completion) -> list[Completion]:
    """One for each message of the model, with what answers it. A completion without messages is one turn."""
    if not completion.turns:
        return [completion]
    parts: list[list[Mapping[str, Any]]] = []
    for message in completion.turns:
        if message.get("role") == "assistant" or not parts:
            parts.append([])
        parts[-1].append(message)
    return [Completion(_text(part[0]), tuple(part), part[0].get("tokens")) for part in parts]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
