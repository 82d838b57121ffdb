"""Format rewards: does the completion think, and answer, inside tags?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.reward import Params, param


@dataclass(frozen=True)
class ThinkTagsParams(Params):
    tag: str = param("think", "Name of the tag, without brackets.")
    opened_by_prompt: bool = param(
        False, "The chat template has already written the opening tag, so only the closing one is expected."
    )
    needs_text_after: bool = param(True, "Something other than white space must follow the closing tag.")
    partial: bool = param(False, "Give each condition met its equal share instead of all or nothing.")

    def problem(self) -> str | None:
        return _tag_problem(self.tag)


@dataclass(frozen=True)
class AnswerTagParams(Params):
    tag: str = param("answer", "Name of the tag, without brackets.")
    at_end: bool = param(False, "Nothing but white space may follow the closing tag.")
    partial: bool = param(False, "Give each condition met its equal share instead of all or nothing.")

    def problem(self) -> str | None:
        return _tag_problem(self.tag)


def think_tags(completion: str, row: Mapping[str, Any], params: ThinkTagsParams) -> float:
    text = f"<{params.tag}>{completion}" if params.opened_by_prompt else completion
    opened, closed = f"<{params.tag}>", f"</{params.tag}>"
    inside, after = _between(text, opened, closed)
    conditions = [
        text.lstrip().startswith(opened) and text.count(opened) == 1,
        text.count(closed) == 1,
        bool(inside.strip()),
    ]
    if params.needs_text_after:
        conditions.append(bool(after.strip()))
    return _share(conditions, params.partial)


def answer_tag(completion: str, row: Mapping[str, Any], params: AnswerTagParams) -> float:
    opened, closed = f"<{params.tag}>", f"</{params.tag}>"
    inside, after = _between(completion, opened, closed)
    conditions = [completion.count(opened) == 1, completion.count(closed) == 1, bool(inside.strip())]
    if params.at_end:
        conditions.append(closed in completion and not after.strip())
    return _share(conditions, params.partial)


def _between(text: str, opened: str, closed: str) -> tuple[str, str]:
    """(what stands between the first pair, what follows it); empty when there is no pair."""
    _, found, rest = text.partition(opened)
    if not found:
        return "", ""
    inside, found, after = rest.partition(closed)
    return (inside, after) if found else ("", "")


def _share(conditions: list[bool], partial: bool) -> float:
    return sum(conditions) / len(conditions) if partial else float(all(conditions))


def _tag_problem(tag: str) -> str | None:
    if tag and tag.replace("_", "").replace("-", "").isalnum():
        return None
    return "tag: must be a name of letters, digits, - and _"
