"""From an uploaded row to a canonical one: which column is the prompt, which the answer, and how they are wrapped.

Standard library only and pure: the checking child maps the whole file with it, the page draws its example with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PROMPT_NAMES = ("prompt", "question", "problem", "instruction", "input", "query", "text")
ANSWER_NAMES = ("answer", "solution", "target", "ground_truth", "completion", "response", "output", "label", "expected")
MARKERS = ("####",)
RESERVED = frozenset(
    (
        *("row", "prompt", "answer", "prompts", "completion", "completions", "completion_ids", "image", "images"),
        *("tools", "trainer_state", "log_extra", "log_metric", "environments", "chat_template_kwargs"),
    )
)
"""Column names that mean something to the canonical file or to TRL; a file's own columns of these names get
`source_` in front."""


class RowProblem(Exception):
    """The mapping doesn't fit a row."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class ColumnMapping:
    prompt: str
    answer: str = ""
    """Empty: the dataset has no answers."""
    answer_after: str = ""
    """The answer is what follows the last such marker; empty: the whole text."""
    system_prompt: str = ""
    chat: bool = True
    """The prompt becomes messages for the model's chat template; otherwise it is plain text."""
    leave_out: bool = False
    """Leave out rows with problems. Somebody has to ask for it: rows never vanish silently."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ColumnMapping:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


def guess(rows: Sequence[Mapping[str, Any]]) -> ColumnMapping:
    """A sensible start from the first rows; the page shows it for somebody to agree or correct."""
    first = rows[0] if rows else {}
    names = {name.lower(): name for name in reversed(list(first))}
    texts = [name for name, value in first.items() if isinstance(value, str)]
    prompt = next((names[n] for n in PROMPT_NAMES if n in names), texts[0] if texts else next(iter(first), ""))
    answer = next((names[n] for n in ANSWER_NAMES if n in names and names[n] != prompt), "")
    marker = next((m for m in MARKERS if answer and all(m in str(row.get(answer, "")) for row in rows)), "")
    return ColumnMapping(prompt=prompt, answer=answer, answer_after=marker)


def canonical(row: Mapping[str, Any], mapping: ColumnMapping) -> dict[str, Any]:
    """{"prompt", "answer", ...other columns}; raises RowProblem. The number `row` is the caller's to add."""
    result: dict[str, Any] = {"prompt": _prompt(row, mapping), "answer": _answer(row, mapping)}
    for name, value in row.items():
        if name in (mapping.prompt, mapping.answer):
            continue
        result[f"source_{name}" if name in RESERVED else name] = value
    return result


def prompt_text(prompt: str | list[dict[str, str]]) -> str:
    """The prompt's own text, without the system prompt: what tells rows apart."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(message["content"] for message in prompt if message["role"] != "system")


def _prompt(row: Mapping[str, Any], mapping: ColumnMapping) -> str | list[dict[str, str]]:
    value = _present(row, mapping.prompt)
    if isinstance(value, str):
        if not value.strip():
            raise RowProblem("empty prompt", f"“{mapping.prompt}” is empty.")
        if not mapping.chat:
            return f"{mapping.system_prompt}\n\n{value}" if mapping.system_prompt else value
        return [*_system(mapping), {"role": "user", "content": value}]
    if isinstance(value, list):
        return _messages(value, mapping)
    raise RowProblem("wrong type", f"“{mapping.prompt}” is {_kind(value)}; a prompt is a text or a list of messages.")


def _messages(value: list[Any], mapping: ColumnMapping) -> list[dict[str, str]]:
    if not mapping.chat:
        raise RowProblem("wrong type", f"“{mapping.prompt}” is a list of messages: choose “chat” for this file.")
    messages = []
    for message in value:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)) or not isinstance(
            message.get("content"), str
        ):
            raise RowProblem("wrong type", f"A message in “{mapping.prompt}” lacks a text “role” or “content”.")
        messages.append({"role": message["role"], "content": message["content"]})
    if not any(message["role"] != "system" and message["content"].strip() for message in messages):
        raise RowProblem("empty prompt", f"“{mapping.prompt}” has no message with a text.")
    if messages[-1]["role"] == "assistant":
        raise RowProblem(
            "wrong type", f"“{mapping.prompt}” ends with an answer of the assistant; it has to end before."
        )
    return messages if messages[0]["role"] == "system" else [*_system(mapping), *messages]


def _system(mapping: ColumnMapping) -> list[dict[str, str]]:
    return [{"role": "system", "content": mapping.system_prompt}] if mapping.system_prompt else []


def _answer(row: Mapping[str, Any], mapping: ColumnMapping) -> str | None:
    if not mapping.answer:
        return None
    value = _present(row, mapping.answer)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong type", f"“{mapping.answer}” is {_kind(value)}; an answer is a text or a number.")
    text = str(value)
    if mapping.answer_after:
        _, found, text = text.rpartition(mapping.answer_after)
        if not found:
            raise RowProblem("marker missing", f"“{mapping.answer}” has no {mapping.answer_after} in it.")
    text = text.strip()
    if not text:
        raise RowProblem("empty answer", f"“{mapping.answer}” is empty.")
    return text


def _present(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if value is None:
        raise RowProblem("missing field", f"“{name}” is {'null' if name in row else 'missing'} in this row.")
    return value


def _kind(value: Any) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "true or false"),
        (str, "a text"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
    )
    return next((word for kind, word in kinds if isinstance(value, kind)), "an object")
