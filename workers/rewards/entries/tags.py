"""Format rewards for tags and boxes around a completion's reasoning and answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.extract import last_boxed
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Example, Reward

MAX_TAGS = 12


def names(comma_separated: str) -> list[str]:
    """Split comma-separated names."""
    return [name for part in comma_separated.split(",") if (name := part.strip())]


def names_problem(comma_separated: str, *, allows_none: bool = False) -> str:
    """Return why a parameter of comma-separated tag names is invalid, or "" if it is valid."""
    tags = names(comma_separated)
    if not tags and not allows_none:
        return "must name a tag"
    if len(set(tags)) < len(tags):
        return "must not name a tag twice"
    if len(tags) > MAX_TAGS:
        return f"must contain at most {MAX_TAGS} names"
    if any(map(_tag_problem, tags)):
        return "must be comma-separated names of letters, digits, - and _"
    return ""


def _tag_problem(tag: str) -> str:
    is_name = tag.replace("_", "").replace("-", "").isalnum()
    return "" if is_name else "must be a name of letters, digits, - and _"


@dataclass(frozen=True)
class ThinkPresentParams(Params):
    tag: str = param("think", "Name of the tag, without brackets.", rule=_tag_problem)
    opened_by_prompt: bool = param(
        False, "Expect only the closing tag, because the chat template already writes the opening one."
    )


@dataclass(frozen=True)
class ThinkTagsParams(ThinkPresentParams):
    needs_text_after: bool = param(True, "Require text other than white space after the closing tag.")
    partial: bool = param(False, "Score the share of conditions that are met instead of all or nothing.")


@dataclass(frozen=True)
class AnswerTagParams(Params):
    tag: str = param("answer", "Name of the tag, without brackets.", rule=_tag_problem)
    at_end: bool = param(False, "Allow only white space after the closing tag.")
    partial: bool = param(False, "Score the share of conditions that are met instead of all or nothing.")


@dataclass(frozen=True)
class SoftFormatParams(Params):
    tags: str = param(
        "think, answer",
        "Comma-separated names of the tags, in the order in which they should appear.",
        rule=names_problem,
    )
    opened_by_prompt: bool = param(False, "The chat template already writes the first opening tag.")
    nothing_outside: bool = param(False, "Add a condition: no text outside the tags.")


@dataclass(frozen=True)
class BoxedPresentParams(Params):
    once: bool = param(False, "Require exactly one box; otherwise the last box is used.")


def think_present(completion: str, row: Mapping[str, Any], params: ThinkPresentParams) -> float:
    """Return 1 if there is an opening tag with a closing tag somewhere after it, else 0. The text inside and around
    them doesn't matter, nor how often the tags appear."""
    text = f"<{params.tag}>{completion}" if params.opened_by_prompt else completion
    start = text.find(f"<{params.tag}>")
    return float(start >= 0 and text.find(f"</{params.tag}>", start) >= 0)


def think_tags(completion: str, row: Mapping[str, Any], params: ThinkTagsParams) -> float:
    """Return 1 if the completion begins with its only think block, which is not empty and is followed by text, else 0;
    with `partial`, return the share of these conditions that are met. This is DeepSeek-R1's format reward
    (arXiv:2501.12948)."""
    text = f"<{params.tag}>{completion}" if params.opened_by_prompt else completion
    open_tag, close_tag = f"<{params.tag}>", f"</{params.tag}>"
    content, after = _first_content(text, open_tag, close_tag)
    conditions = [
        text.lstrip().startswith(open_tag) and text.count(open_tag) == 1,
        text.count(close_tag) == 1,
        bool(content.strip()),
    ]
    if params.needs_text_after:
        conditions.append(bool(after.strip()))
    return _share(conditions, params.partial)


def soft_format(completion: str, row: Mapping[str, Any], params: SoftFormatParams) -> float:
    """Return 0 to 1, the share of conditions that are met: each tag is opened once, closed once and not empty, and each
    tag begins after the previous one has ended. While a format is being learned, this gives different scores where an
    all-or-nothing reward gives every completion of a group the same 0."""
    tags = names(params.tags)
    text = f"<{tags[0]}>{completion}" if params.opened_by_prompt else completion
    conditions: list[bool] = []
    outside_text, previous_end = text, -1
    for number, tag in enumerate(tags):
        open_tag, close_tag = f"<{tag}>", f"</{tag}>"
        start = text.find(open_tag)
        end = text.find(close_tag, start + len(open_tag)) if start >= 0 else -1
        content = text[start + len(open_tag) : end] if end >= 0 else ""
        conditions += [text.count(open_tag) == 1, text.count(close_tag) == 1, bool(content.strip())]
        if number:
            conditions.append(0 <= previous_end <= start)
        previous_end = end
        if params.nothing_outside and end >= 0:
            outside_text = outside_text.replace(f"{open_tag}{content}{close_tag}", "", 1)
    if params.nothing_outside:
        conditions.append(not outside_text.strip())
    return _share(conditions, partial=True)


def answer_tag(completion: str, row: Mapping[str, Any], params: AnswerTagParams) -> float:
    """Return 1 if there is exactly one answer tag and it is not empty, else 0; with `partial`, return the share of
    conditions that are met."""
    open_tag, close_tag = f"<{params.tag}>", f"</{params.tag}>"
    content, after = _first_content(completion, open_tag, close_tag)
    conditions = [completion.count(open_tag) == 1, completion.count(close_tag) == 1, bool(content.strip())]
    if params.at_end:
        conditions.append(close_tag in completion and not after.strip())
    return _share(conditions, params.partial)


def boxed_present(completion: str, row: Mapping[str, Any], params: BoxedPresentParams) -> float:
    r"""Return 1 if the last \boxed{…} (with `once`, the only one) is complete and not empty, else 0. What is in the box
    doesn't matter, so use this together with a reward for the answer."""
    if params.once and completion.count("\\boxed{") != 1:
        return 0.0
    return float(bool((last_boxed(completion) or "").strip()))


def _first_content(text: str, open_tag: str, close_tag: str) -> tuple[str, str]:
    """Return (the content of the first pair of tags, the text after it); both are empty if there is no pair."""
    _, separator, rest = text.partition(open_tag)
    if not separator:
        return "", ""
    content, separator, after = rest.partition(close_tag)
    return (content, after) if separator else ("", "")


def _share(conditions: list[bool], partial: bool) -> float:
    return sum(conditions) / len(conditions) if partial else float(all(conditions))


REWARDS = (
    Reward(
        key="think_present",
        title="Think block, loose",
        help="1 if there is a <think> with a </think> somewhere after it.",
        function=think_present,
        params=ThinkPresentParams,
        low="The opening tag is missing, or no closing tag follows it.",
        high="Both tags are present, in order.",
        use="At the very beginning, for a model that doesn't know the tags. Switch to “Think block, strict” later.",
        examples=(
            Example("Well: <think>3 + 4</think> 7", 1.0, why="Both tags are present; text before them is allowed."),
            Example("3 + 4 = 7</think>", 0.0, why="There is no opening tag."),
        ),
    ),
    Reward(
        key="think_tags",
        title="Think block, strict",
        help="1 if the completion begins with one non-empty <think>…</think> block, followed by more text.",
        function=think_tags,
        params=ThinkTagsParams,
        low="Not met: it must begin with the tag, close it once, and have text in the block and after it.",
        high="One block of reasoning, then an answer.",
        use="With a small weight, together with a reward for the answer, to keep reasoning and answer separate.",
        examples=(
            Example("<think>3 + 4 makes 7.</think>The answer is 7.", 1.0, why="Reasoning, then an answer."),
            Example("Well, <think>3 + 4</think>7", 0.0, why="It doesn't begin with the tag."),
            Example(
                "<think>3 + 4 is",
                0.25,
                params={"partial": True},
                why="One of four conditions is met: it begins with the tag.",
            ),
        ),
    ),
    Reward(
        key="soft_format",
        title="Soft format",
        help="Share of the format's conditions that are met: tags opened, closed, not empty and in order.",
        function=soft_format,
        params=SoftFormatParams,
        low="None of the conditions is met.",
        high="Every tag is opened once, closed once, not empty and in order.",
        use="While the format is being learned. Half of the format earns half the score, so a group's completions get "
        "different scores from the first step on.",
        examples=(
            Example("<think>3 + 4</think><answer>7</answer>", 1.0, why="All seven conditions are met."),
            Example("<think>3 + 4</think>It is 7.", 3 / 7, why="<think> is opened, closed and not empty: 3 of 7."),
            Example("It is 7.", 0.0, why="There are no tags."),
        ),
    ),
    Reward(
        key="answer_tag",
        title="Tagged answer",
        help="1 if there is exactly one <answer>…</answer> and it is not empty.",
        function=answer_tag,
        params=AnswerTagParams,
        low="No complete tag, more than one, or an empty one.",
        high="Exactly one tag, with an answer in it.",
        use="Together with a reward that looks for the answer in this tag.",
        examples=(
            Example("So it is <answer>7</answer>.", 1.0, why="One tag, which is not empty."),
            Example("<answer>7</answer> or <answer>8</answer>", 0.0, why="There are two answers."),
        ),
    ),
    Reward(
        key="boxed_present",
        title="Boxed answer",
        help=r"1 if there is a complete \boxed{…} that is not empty.",
        function=boxed_present,
        params=BoxedPresentParams,
        low="No box, an empty one, or one that is never closed.",
        high="A box with an answer in it.",
        use="Together with a reward for mathematics, for models that were taught to box their answer.",
        examples=(
            Example(r"So it is \boxed{\frac{3}{4}}.", 1.0, why="The box is complete, with braces inside it."),
            Example(r"So it is \boxed{7", 0.0, why="The box is never closed."),
        ),
    ),
)
